"""Sequences of sizes that are known by a few of their facts: classes and degrees."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray


def geometric_sizes(total: int, count: int, smallest: int) -> NDArray[np.int64]:
    """Share a total out into sizes that fall geometrically to ``smallest``.  int64 [count]

    size_k = smallest · q^(count - 1 - k), with the q that makes the sum right.

    >>> geometric_sizes(70, 3, 10).tolist(), geometric_sizes(7, 3, 2).tolist()
    ([40, 20, 10], [3, 2, 2])
    """
    powers = np.arange(count)
    most = (total / smallest) ** (1 / max(count - 1, 1)) + 1

    def excess(q: float) -> float:
        return float((smallest * q**powers).sum()) - total

    q = scipy.optimize.brentq(excess, 1.0, most) if count > 1 and excess(1.0) < 0 else 1.0
    ends = np.rint((smallest * q**powers).cumsum()).astype(np.int64)
    ends[-1] = total
    sizes: NDArray[np.int64] = np.diff(ends, prepend=0)[::-1]
    return sizes


def log_normal_sizes(count: int, mean: float, largest: float) -> NDArray[np.float64]:
    """Return the quantiles of a log-normal law with this mean and this largest value.  [count]

    exp(μ + σ z) with standard normal z has the mean exp(μ + σ²/2), and the largest of n values has
    about z_n = Φ⁻¹(1 - 1/2n): so ln(largest / mean) = σ z_n - σ²/2. Quantiles instead of draws,
    so that no seed has a freak among its hubs.

    >>> sizes = log_normal_sizes(10_000, 50.0, 2000.0)
    >>> round(sizes.mean()), round(sizes.max())
    (50, 2000)
    """
    z = scipy.special.ndtri((np.arange(count) + 0.5) / count)
    # Beyond z_n no σ reaches the ratio: the law is then as wide as it gets.
    sigma = z[-1] - math.sqrt(max(z[-1] ** 2 - 2 * math.log(max(largest / mean, 1.0)), 0.0))
    sizes: NDArray[np.float64] = np.exp(sigma * z)
    sizes *= mean / sizes.mean()
    return np.minimum(sizes, largest)
