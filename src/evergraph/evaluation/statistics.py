"""Statistical tests of differences between scores: pure functions of numbers.

Friedman's chi-square and the Studentised range come from scipy.stats. It lacks exact p-values with
ties for more than a few numbers, a t-test of scores too coarse to show their spread, and Holm's
correction: these are implemented here. It is imported on use, since that takes a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc, ndtr, stdtr, stdtrit

from evergraph.core.errors import ConfigurationError, check_number

Sample = npt.ArrayLike
Numbers = npt.NDArray[np.float64]
CONFIDENCE = 0.95
ROUNDING = 1e-12  # numbers whose range is below this are equal up to rounding
MAX_PAIRS_COUNTED = 50  # pairs up to which every outcome is counted
LEAST_PAIRS = 6  # below this no outcome has a two-sided p below 0.05: 2/2^5 is 0.0625
LEAST_DATASETS = 3  # for ranks of methods; claims need LEAST_PAIRS
MAX_OUTCOMES = 1_000_000  # outcomes per dataset up to which p is exact
SAME_RANK = 1e-9  # mean ranks closer than this are equal up to rounding


def sample(name: str, values: Sample, *, least: int) -> Numbers:
    """Return a sample as an array; raise unless it has enough numbers, all of them finite."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise ConfigurationError(f"{name} must be a list of numbers, not of shape {numbers.shape}")
    if len(numbers) < least:
        raise ConfigurationError(f"{name} must have at least {least} numbers, not {len(numbers)}")
    if not np.isfinite(numbers).all():
        raise ConfigurationError(f"{name} must have finite numbers only")
    return numbers


def differences(a: Sample, b: Sample, *, least: int) -> Numbers:
    """Return ``a - b`` of paired samples.  [pairs]"""
    first, second = sample("a", a, least=least), sample("b", b, least=least)
    if len(first) != len(second):
        raise ConfigurationError(
            f"a and b must be of the same length to be paired, not {len(first)} and {len(second)}"
        )
    return first - second


def rising_ranks(values: Numbers) -> Numbers:
    """Return the rank of each number, the smallest being 1; equal ones share their mean rank.

    Numbers that differ only after the twelfth decimal are equal.

    >>> rising_ranks(np.array([0.5, 0.9, 0.5]))
    array([1.5, 3. , 1.5])
    """
    _, inverse, counts = np.unique(np.round(values, 12), return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


@dataclass(frozen=True)
class Difference:
    """The difference between the means of two samples.

    Attributes:
        mean: mean of the first minus mean of the second.
        error: its standard error; infinite if unknown.
        freedom: degrees of freedom of Student's t.
        pairs: number of pairs; 0 if samples are not paired.
        confidence: confidence level of the interval.
    """

    mean: float
    error: float
    freedom: float
    pairs: int = 0
    confidence: float = CONFIDENCE

    @property
    def low(self) -> float:
        """The lower end of the confidence interval."""
        return self.mean - self._margin

    @property
    def high(self) -> float:
        """The upper end of the confidence interval."""
        return self.mean + self._margin

    @property
    def p_value(self) -> float:
        """Two-sided p-value: probability of a mean this far from 0 without a difference."""
        if not self.error:
            return 1.0 if abs(self.mean) <= ROUNDING else 0.0
        return 2 * float(stdtr(self.freedom, -abs(self.mean) / self.error))

    @property
    def _margin(self) -> float:
        return float(stdtrit(self.freedom, (1 + self.confidence) / 2)) * self.error


def paired_difference(
    a: Sample,
    b: Sample,
    *,
    confidence: float = CONFIDENCE,
    least_spread: float = 0.0,
    overlap: float = 0.0,
) -> Difference:
    """Return the mean difference of pairs, by Student's t, corrected if they share test nodes.

    With d = a - b of n pairs: mean(d) ± t · s(d) · √(1/n + overlap), t being the quantile of
    Student's distribution with n - 1 degrees of freedom. If all pairs differ by the same amount,
    the interval is a point, and p is 0, or 1 if they do not differ.

    a, b: [pairs], at least 2. least_spread: lower bound for s(d): scores of a few predictions may
    agree by chance, and then show no spread although there is one. overlap: 0 for independent
    pairs; for random splits of one dataset, its tested nodes over all others (Nadeau and Bengio
    2003): splits share nodes, so that their scores spread less than those of other datasets would.

    d is 1, 2 and 3: mean 2, s = 1, and 4.303/√3 on either side.

    >>> d = paired_difference([2, 4, 6], [1, 2, 3])
    >>> d.mean, round(d.low, 2), round(d.high, 2), round(d.p_value, 3)
    (2.0, -0.48, 4.48, 0.074)
    """
    check_number("confidence", confidence, least=0.5, most=1 - 1e-9)
    change = differences(a, b, least=2)
    pairs = len(change)
    error = max(_deviation(change), least_spread) * math.sqrt(1 / pairs + overlap)
    return Difference(float(change.mean()), error, pairs - 1, pairs, confidence)


def unpaired_difference(
    a: Sample,
    b: Sample,
    *,
    confidence: float = CONFIDENCE,
    least_spread: float = 0.0,
    overlap: float = 0.0,
) -> Difference:
    """Return the difference of the means of unpaired samples, by Welch's t.

    With v = s² (1/n + overlap) of each sample: mean(a) - mean(b) ± t · √(v_a + v_b), at
    (v_a + v_b)² / (v_a²/(n_a - 1) + v_b²/(n_b - 1)) degrees of freedom (Welch 1947): samples may
    differ in size and in spread.

    a: [numbers], b: [numbers], at least 2 each. least_spread: lower bound for s. overlap: see
    ``paired_difference``.

    Means 2 and 5, v = 1/3 each: 3 in steps of 0.816, with 4 degrees of freedom.

    >>> d = unpaired_difference([1, 2, 3], [4, 5, 6])
    >>> d.mean, round(d.low, 2), round(d.p_value, 3)
    (-3.0, -5.27, 0.021)
    """
    check_number("confidence", confidence, least=0.5, most=1 - 1e-9)
    first, second = sample("a", a, least=2), sample("b", b, least=2)
    variance_a = max(_deviation(first), least_spread) ** 2 * (1 / len(first) + overlap)
    variance_b = max(_deviation(second), least_spread) ** 2 * (1 / len(second) + overlap)
    variance = variance_a + variance_b
    freedom = 1.0
    if variance:
        terms = variance_a**2 / (len(first) - 1) + variance_b**2 / (len(second) - 1)
        freedom = variance**2 / terms
    mean = float(first.mean() - second.mean())
    return Difference(mean, math.sqrt(variance), freedom, confidence=confidence)


def _deviation(values: Numbers) -> float:
    return 0.0 if np.ptp(values) <= ROUNDING else float(np.std(values, ddof=1))


@dataclass(frozen=True)
class SignedRanks:
    """The result of Wilcoxon's test.

    Attributes:
        wins, losses: pairs in which the first, or the second, is higher; ties are neither.
        won, lost: the sums of their ranks.
        p_value: two-sided probability of sums this far apart without a difference.
    """

    wins: int
    losses: int
    won: float
    lost: float
    p_value: float

    @property
    def statistic(self) -> float:
        """Wilcoxon's T, the smaller sum."""
        return min(self.won, self.lost)


def wilcoxon(a: Sample, b: Sample) -> SignedRanks:
    """Return Wilcoxon's signed-rank test of paired scores (Wilcoxon 1945; Demšar 2006).

    Pairs are ranked by the size of their difference, the smallest first, equal ones by their mean
    rank; T is the smaller of the rank sums of wins and of losses. Pairs without a difference are
    left out. Up to 50 pairs p is exact, with any ties: of the 2ⁿ ways to assign signs to the
    ranks, the share whose T is no larger. Beyond, a normal approximation corrected for ties.

    a, b: [pairs]

    Ranks 1, 2 and 3 are won and none is lost: 2 of 8 ways have sums as far apart.

    >>> wilcoxon([2, 4, 6], [1, 2, 3])
    SignedRanks(wins=3, losses=0, won=6.0, lost=0.0, p_value=0.25)
    """
    change = differences(a, b, least=1)
    change = change[np.abs(change) > ROUNDING]
    ranks = rising_ranks(np.abs(change))
    won, lost = float(ranks[change > 0].sum()), float(ranks[change < 0].sum())
    smaller = min(won, lost)
    if len(ranks) <= MAX_PAIRS_COUNTED:
        p_value = _exact_p_value(ranks, smaller)
    else:
        deviation = math.sqrt(float((ranks**2).sum()) / 4)
        p_value = float(2 * ndtr((smaller - ranks.sum() / 2) / deviation))
    wins, losses = int((change > 0).sum()), int((change < 0).sum())
    return SignedRanks(wins, losses, won, lost, min(1.0, p_value))


def _exact_p_value(ranks: Numbers, statistic: float) -> float:
    """Return twice the probability of a sum of ranks no larger than the statistic.

    Every rank is in the sum or not, both as likely.
    """
    doubled = np.round(2 * ranks).astype(int)  # a mean rank may end in a half
    probabilities = np.ones(1)  # of every sum of the ranks so far
    for rank in doubled:
        extended = np.zeros(len(probabilities) + rank)
        extended[rank:] = probabilities
        extended[: len(probabilities)] += probabilities
        probabilities = extended / 2
    return float(2 * probabilities[: round(2 * statistic) + 1].sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979).

    The smallest of m is multiplied by m, the next by m - 1, and so on; the order is preserved and
    none exceeds 1. Claiming a difference for those below 0.05 makes any false claim in at most 5 of
    100 cases, however they depend on each other.

    >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    ascending = sorted(range(len(p_values)), key=lambda i: p_values[i])
    largest = 0.0  # of the corrected ones so far
    for smaller, i in enumerate(ascending):
        largest = max(largest, min(1.0, (len(p_values) - smaller) * p_values[i]))
        corrected[i] = largest
    return corrected


@dataclass(frozen=True)
class Ranks:
    """Mean ranks of methods over datasets, 1 being the best.

    Attributes:
        mean_ranks: one per method.
        critical_difference: two methods differ if their mean ranks are farther apart than this,
            given that any differ at all.
        friedman_p: probability of ranks this different if all methods are equally good.
        datasets: number of datasets.
        confidence: methods differ at all if Friedman's p is below 1 - confidence.
    """

    mean_ranks: tuple[float, ...]
    critical_difference: float
    friedman_p: float
    datasets: int
    confidence: float = CONFIDENCE

    @property
    def differs(self) -> bool:
        """Whether any methods differ: by Friedman's test, over at least 6 datasets."""
        return self.datasets >= LEAST_PAIRS and self.friedman_p < 1 - self.confidence

    def differ(self, first: int, second: int) -> bool:
        """Return whether two methods differ."""
        gap = abs(self.mean_ranks[first] - self.mean_ranks[second])
        return self.differs and gap > self.critical_difference + SAME_RANK


@cache
def _quantile(confidence: float, methods: int) -> float:
    from scipy.stats import studentized_range  # takes a second to import

    return float(studentized_range.ppf(confidence, methods, np.inf)) / math.sqrt(2)


def nemenyi(scores: npt.ArrayLike, *, confidence: float = CONFIDENCE) -> Ranks:
    """Rank methods on every dataset, best first, and test whether they differ (Demšar 2006).

    Equal scores share their mean rank. Friedman's test decides whether methods differ at all: p is
    the share of all orders of the ranks within datasets whose mean ranks are at least as different,
    exact and given the ties while these orders can be counted. Beyond, his χ², corrected for ties,
    of k methods over n datasets becomes Iman and Davenport's F = (n-1)χ² / (n(k-1) - χ²). Nemenyi's
    critical difference is q · √(k(k+1)/6n), q being the quantile of the Studentised range of k
    over √2. No difference is claimed over fewer than 6 datasets.

    scores: [datasets, methods], at least 3 and 2; higher is better.

    Three datasets agree on the order of two methods, as 2 of 8 orders do: q = 1.96.

    >>> ranks = nemenyi([[0.9, 0.5], [0.8, 0.6], [0.7, 0.1]])
    >>> ranks.mean_ranks, ranks.friedman_p, round(ranks.critical_difference, 3)
    ((1.0, 2.0), 0.25, 1.132)
    """
    check_number("confidence", confidence, least=0.5, most=1 - 1e-9)
    numbers = np.asarray(scores, dtype=np.float64)
    if numbers.ndim != 2 or numbers.shape[0] < LEAST_DATASETS or numbers.shape[1] < 2:
        raise ConfigurationError(
            f"scores must be of at least {LEAST_DATASETS} datasets and 2 methods, not of shape "
            f"{numbers.shape}"
        )
    if not np.isfinite(numbers).all():
        raise ConfigurationError("scores must be finite numbers only")
    ranks = np.array([rising_ranks(-row) for row in numbers])
    datasets, methods = ranks.shape
    error = math.sqrt(methods * (methods + 1) / (6 * datasets))
    return Ranks(
        mean_ranks=tuple(map(float, ranks.mean(axis=0))),
        critical_difference=_quantile(confidence, methods) * error,
        friedman_p=friedman(ranks),
        datasets=datasets,
        confidence=confidence,
    )


def friedman(ranks: Numbers) -> float:
    """Return Friedman's p: the probability of ranks this different if all orders are as likely.

    ranks: [datasets, methods], each row from 1; equal ones share their mean.
    """
    doubled = np.sort(np.round(2 * ranks).astype(np.int64), axis=1)  # a mean rank may be a half
    patterns = tuple(sorted(map(tuple, doubled.tolist())))
    outcomes = _outcomes(patterns)
    if outcomes is not None:
        statistics, probabilities = outcomes
        observed = np.round((2 * ranks.sum(axis=0)) ** 2).sum()
        return min(1.0, float(probabilities[statistics >= observed].sum()))
    if (np.ptp(ranks, axis=1) == 0).all():
        return 1.0
    from scipy.stats import friedmanchisquare  # takes a second to import

    n, k = ranks.shape
    chi = float(friedmanchisquare(*ranks.T).statistic)
    denominator = n * (k - 1) - chi
    p_value = 0.0
    if denominator > SAME_RANK:  # Iman and Davenport's F
        p_value = float(fdtrc(k - 1, (k - 1) * (n - 1), (n - 1) * chi / denominator))
    return max(p_value, math.exp(-(n - 1) * math.lgamma(k + 1)))  # its value if all agree


@cache
def _outcomes(patterns: tuple[tuple[int, ...], ...]) -> tuple[Numbers, Numbers] | None:
    """Return the sums of squared rank sums over all orders, and the probability of each.

    patterns: the ranks of each dataset. Methods are interchangeable, so sums are kept sorted and
    outcomes stay few. None if there are too many.
    """
    sums = np.zeros((1, len(patterns[0])), dtype=np.int64)
    probabilities: Numbers = np.ones(1)
    digits = (2 * sums.size * len(patterns) + 1) ** np.arange(sums.size)  # encodes sums as a number
    for pattern in patterns:
        if len(sums) * math.factorial(len(pattern)) > MAX_OUTCOMES:
            return None
        orders = np.array([*set(permutations(pattern))])
        next_sums = np.sort((sums[:, None] + orders).reshape(-1, len(pattern)), axis=1)
        _, first, inverse = np.unique(next_sums @ digits, return_index=True, return_inverse=True)
        weights = np.repeat(probabilities / len(orders), len(orders))
        probabilities = np.asarray(np.bincount(inverse, weights), dtype=np.float64)
        sums = next_sums[first]
    return (sums**2).sum(axis=1).astype(np.float64), probabilities
