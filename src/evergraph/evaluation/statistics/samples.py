"""Samples as arrays, and the rules that they keep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evergraph.core.errors import ConfigurationError

Sample = npt.ArrayLike
Numbers = npt.NDArray[np.float64]


def sample(name: str, values: Sample, *, least: int) -> Numbers:
    """Return a sample as an array; raise unless it has enough numbers, all of them finite.

    >>> sample("a", [0.5], least=2)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: a must have at least 2 numbers, not 1
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise ConfigurationError(f"{name} must be a list of numbers, not of shape {numbers.shape}")
    if len(numbers) < least:
        raise ConfigurationError(f"{name} must have at least {least} numbers, not {len(numbers)}")
    if not np.isfinite(numbers).all():
        raise ConfigurationError(f"{name} must have finite numbers only")
    return numbers


def differences(a: Sample, b: Sample, *, least: int) -> Numbers:
    """Return ``a - b`` of samples that are paired one by one.  [pairs]

    >>> differences([3, 5], [1, 1], least=2)
    array([2., 4.])
    """
    ours, theirs = sample("a", a, least=least), sample("b", b, least=least)
    if len(ours) != len(theirs):
        raise ConfigurationError(
            f"a and b must be of the same length to be paired, not {len(ours)} and {len(theirs)}"
        )
    return ours - theirs


def rising_ranks(values: Numbers) -> Numbers:
    """Return the rank of each number, the smallest being 1; equal ones share their mean rank.

    Numbers that differ after the twelfth decimal only are equal. Not ``scipy.stats.rankdata``,
    which takes a second to import.

    >>> rising_ranks(np.array([0.5, 0.9, 0.5]))
    array([1.5, 3. , 1.5])
    """
    _, place, counts = np.unique(np.round(values, 12), return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks
