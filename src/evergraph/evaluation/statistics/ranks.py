"""Many methods over many datasets: mean ranks, and how far apart they must be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc

from evergraph.core.checks import check_number
from evergraph.core.errors import ConfigurationError
from evergraph.evaluation.statistics.difference import CONFIDENCE
from evergraph.evaluation.statistics.samples import Numbers, rising_ranks
from evergraph.evaluation.statistics.wilcoxon import LEAST_PAIRS

LEAST_DATASETS = 3  # to rank methods over; nothing is claimed of fewer than LEAST_PAIRS
ROOM = 1_000_000  # outcomes looked at a dataset, up to which p is exact
ALIKE = 1e-9  # mean ranks closer than this are the same but for rounding


@dataclass(frozen=True)
class Ranks:
    """Mean ranks of methods over datasets, 1 being the best.

    Attributes:
        mean_ranks: one a method.
        critical_difference: mean ranks farther apart than this tell two methods apart, if any two
            are told apart at all.
        friedman_p: how probable ranks this unlike are if all methods are equally good.
        datasets: over how many.
        confidence: methods differ at all where Friedman's p is below what it leaves.
    """

    mean_ranks: tuple[float, ...]
    critical_difference: float
    friedman_p: float
    datasets: int
    confidence: float = CONFIDENCE

    @property
    def differs(self) -> bool:
        """Whether any methods are told apart: by Friedman's test, over at least 6 datasets."""
        return self.datasets >= LEAST_PAIRS and self.friedman_p < 1 - self.confidence

    def differ(self, one: int, other: int) -> bool:
        """Whether two methods are told apart."""
        gap = abs(self.mean_ranks[one] - self.mean_ranks[other])
        return self.differs and gap > self.critical_difference + ALIKE

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """Methods that are not told apart, as large as they get; by place."""
        order = [int(i) for i in np.argsort(self.mean_ranks, kind="stable")]
        found: list[tuple[int, ...]] = []
        reached = 0
        for start in range(len(order)):
            end = start
            while end < len(order) and not self.differ(order[start], order[end]):
                end += 1
            if end > reached and end - start > 1:
                found.append(tuple(order[start:end]))
            reached = max(reached, end)
        return tuple(found)


def nemenyi(scores: npt.ArrayLike, *, confidence: float = CONFIDENCE) -> Ranks:
    """Rank methods on every dataset, the highest score first, and tell them apart (Demšar 2006).

    Equal scores share their mean rank. Methods differ at all by Friedman's test: p is the share of
    all orders of the ranks within datasets that have mean ranks as unlike, exact and given the ties
    while these orders can be counted. Beyond, his χ², corrected for ties, of k methods over n
    datasets becomes Iman and Davenport's F = (n-1)χ² / (n(k-1) - χ²). Then Nemenyi's critical
    difference is q · √(k(k+1)/6n), q being the quantile of the Studentised range of k over √2.
    Nothing is told apart over fewer than 6 datasets.

    scores: [datasets, methods], at least 3 and 2; higher is better.

    Three datasets agree on the order of two methods, as 2 of 8 orders do: q = 1.96.

    >>> ranks = nemenyi([[0.9, 0.5], [0.8, 0.6], [0.7, 0.1]])
    >>> ranks.mean_ranks, ranks.friedman_p, round(ranks.critical_difference, 3), ranks.cliques
    ((1.0, 2.0), 0.25, 1.132, ((0, 1),))
    """
    check_number("confidence", confidence, least=0.5, most=1 - 1e-9)
    table = np.array([rising_ranks(-row) for row in _table(scores)])
    datasets, methods = table.shape
    apart = _quantile(methods, confidence) * math.sqrt(methods * (methods + 1) / (6 * datasets))
    mean = tuple(map(float, table.mean(axis=0)))
    return Ranks(mean, apart, friedman(table), datasets, confidence)


def _table(scores: npt.ArrayLike) -> Numbers:
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < LEAST_DATASETS or table.shape[1] < 2:
        raise ConfigurationError(
            f"scores must be of at least {LEAST_DATASETS} datasets and 2 methods, not of shape "
            f"{table.shape}"
        )
    if not np.isfinite(table).all():
        raise ConfigurationError("scores must be finite numbers only")
    return table


def friedman(ranks: Numbers) -> float:
    """Return Friedman's p: how probable mean ranks this unlike are if all orders are as probable.

    ranks: [datasets, methods], each row from 1; equal ones share their mean.

    >>> friedman(np.array([[1.0, 2.0]] * 5))
    0.0625
    """
    doubled = np.sort(np.round(2 * ranks).astype(np.int64), axis=1)  # a mean rank may be a half
    patterns = tuple(sorted(map(tuple, doubled.tolist())))
    outcomes = _outcomes(patterns)
    if outcomes is None:
        return _iman_davenport(ranks)
    unlike, shares = outcomes
    found = np.round((2 * ranks.sum(axis=0)) ** 2).sum()
    return min(1.0, float(shares[unlike >= found].sum()))


@cache
def _outcomes(patterns: tuple[tuple[int, ...], ...]) -> tuple[Numbers, Numbers] | None:
    """Return the sums of squared rank sums that orders lead to, and how probable each is.

    patterns: of the ranks of each dataset. Which method has which sum does not matter, so that sums
    are kept in order and outcomes stay few. None where there are too many.
    """
    sums = np.zeros((1, len(patterns[0])), dtype=np.int64)
    shares: Numbers = np.ones(1)
    digits = (2 * sums.size * len(patterns) + 1) ** np.arange(sums.size)  # sums as one number each
    for pattern in patterns:
        if len(sums) * math.factorial(len(pattern)) > ROOM:
            return None
        orders = np.array([*set(permutations(pattern))])
        every = np.sort((sums[:, None] + orders).reshape(-1, len(pattern)), axis=1)
        _, first, place = np.unique(every @ digits, return_index=True, return_inverse=True)
        shares = np.asarray(
            np.bincount(place, np.repeat(shares / len(orders), len(orders))), dtype=np.float64
        )
        sums = every[first]
    return (sums**2).sum(axis=1).astype(np.float64), shares


def _iman_davenport(ranks: Numbers) -> float:
    from scipy.stats import friedmanchisquare  # takes a second to import

    n, k = ranks.shape
    if (np.ptp(ranks, axis=1) == 0).all():
        return 1.0
    chi = float(friedmanchisquare(*ranks.T).statistic)
    room = n * (k - 1) - chi
    p_value = float(fdtrc(k - 1, (k - 1) * (n - 1), (n - 1) * chi / room)) if room > ALIKE else 0.0
    return max(p_value, math.exp(-(n - 1) * math.lgamma(k + 1)))  # what it is where all agree


@cache
def _quantile(methods: int, confidence: float) -> float:
    from scipy.stats import studentized_range  # takes a second to import

    return float(studentized_range.ppf(confidence, methods, np.inf)) / math.sqrt(2)
