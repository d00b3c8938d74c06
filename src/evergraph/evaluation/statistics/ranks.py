"""Many methods over many datasets: mean ranks, and how far apart they must be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc

from evergraph.core.checks import check_number
from evergraph.core.errors import ConfigurationError
from evergraph.evaluation.statistics.difference import CONFIDENCE
from evergraph.evaluation.statistics.samples import Numbers, rising_ranks

LEAST_DATASETS = 3
ALIKE = 1e-9  # mean ranks closer than this are the same but for rounding


@dataclass(frozen=True)
class Ranks:
    """Mean ranks of methods over datasets, 1 being the best.

    Attributes:
        mean_ranks: one a method.
        critical_difference: mean ranks farther apart than this tell two methods apart.
        friedman_p: how probable ranks this unlike are if all methods are equally good.
        cliques: methods that are not told apart, as large as they get; by place.
        datasets: over how many.
    """

    mean_ranks: tuple[float, ...]
    critical_difference: float
    friedman_p: float
    cliques: tuple[tuple[int, ...], ...]
    datasets: int

    def differ(self, one: int, other: int) -> bool:
        """Whether two methods are told apart."""
        gap = abs(self.mean_ranks[one] - self.mean_ranks[other])
        return gap > self.critical_difference + ALIKE


def nemenyi(scores: npt.ArrayLike, *, confidence: float = CONFIDENCE) -> Ranks:
    """Rank methods on every dataset, the highest score first, and tell them apart (Demšar 2006).

    Equal scores share their mean rank. Friedman's χ² = 12n/(k(k+1)) · (Σ R² - k(k+1)²/4) of k
    mean ranks R over n datasets becomes Iman and Davenport's F = (n-1)χ² / (n(k-1) - χ²).
    Nemenyi's critical difference is q · √(k(k+1)/6n), q being the quantile of the Studentised range
    of k over √2.

    scores: [datasets, methods], at least 3 and 2; higher is better.

    Three datasets agree on the order of two methods: ranks 1 and 2, q = 1.96.

    >>> ranks = nemenyi([[0.9, 0.5], [0.8, 0.6], [0.7, 0.1]])
    >>> ranks.mean_ranks, round(ranks.critical_difference, 3), ranks.cliques
    ((1.0, 2.0), 1.132, ((0, 1),))
    """
    check_number("confidence", confidence, least=0.5, most=1 - 1e-9)
    table = _table(scores)
    datasets, methods = table.shape
    mean = np.mean([rising_ranks(-row) for row in table], axis=0)
    apart = _quantile(methods, confidence) * math.sqrt(methods * (methods + 1) / (6 * datasets))
    friedman_p = _friedman_p(mean, datasets)
    return Ranks(tuple(map(float, mean)), apart, friedman_p, _cliques(mean, apart), datasets)


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


def _friedman_p(mean: Numbers, n: int) -> float:
    k = len(mean)
    chi = 12 * n / (k * (k + 1)) * (float((mean**2).sum()) - k * (k + 1) ** 2 / 4)
    room = n * (k - 1) - chi
    if room <= ALIKE:  # all datasets agree: F has no bound
        return 0.0
    return float(fdtrc(k - 1, (k - 1) * (n - 1), max(0.0, (n - 1) * chi / room)))


@cache
def _quantile(methods: int, confidence: float) -> float:
    from scipy.stats import studentized_range  # takes a second to import

    return float(studentized_range.ppf(confidence, methods, np.inf)) / math.sqrt(2)


def _cliques(mean: Numbers, apart: float) -> tuple[tuple[int, ...], ...]:
    """Return runs of neighbours within the critical difference that lie in no longer one."""
    order = np.argsort(mean, kind="stable")
    found: list[tuple[int, ...]] = []
    reached = 0
    for start in range(len(order)):
        end = start
        while end < len(order) and mean[order[end]] - mean[order[start]] <= apart + ALIKE:
            end += 1
        if end > reached and end - start > 1:
            found.append(tuple(int(i) for i in order[start:end]))
        reached = max(reached, end)
    return tuple(found)
