"""The difference of two means, with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from evergraph.core.checks import check_number
from evergraph.evaluation.statistics.samples import Numbers, Sample, differences, sample

CONFIDENCE = 0.95
ALIKE = 1e-12  # numbers whose range is below this are the same but for rounding


@dataclass(frozen=True)
class Difference:
    """How far the mean of one sample is above that of another.

    Attributes:
        mean: of the first less that of the second.
        error: its standard error; infinite where nothing is known of it.
        freedom: degrees of freedom of Student's t.
        pairs: how many pairs; 0 where samples are not paired.
        confidence: of the interval.
    """

    mean: float
    error: float
    freedom: float
    pairs: int = 0
    confidence: float = CONFIDENCE

    @property
    def low(self) -> float:
        """The lower end of the confidence interval."""
        return self.mean - self._reach

    @property
    def high(self) -> float:
        """The upper end of the confidence interval."""
        return self.mean + self._reach

    @property
    def p_value(self) -> float:
        """How probable a mean this far from 0 is if there is no difference; two-sided."""
        if not self.error:
            return 1.0 if abs(self.mean) <= ALIKE else 0.0
        return 2 * float(stdtr(self.freedom, -abs(self.mean) / self.error))

    @property
    def paired(self) -> bool:
        """Whether samples are paired."""
        return self.pairs > 0

    @property
    def _reach(self) -> float:
        return float(stdtrit(self.freedom, (1 + self.confidence) / 2)) * self.error


def paired_difference(
    a: Sample, b: Sample, *, confidence: float = CONFIDENCE, least_spread: float = 0.0
) -> Difference:
    """Return the mean difference of pairs, by Student's t.

    With d = a - b of n pairs: mean(d) ± t · s(d)/√n, t being the quantile of Student's
    distribution with n - 1 degrees of freedom. Where all pairs differ by the same the interval is a
    point, and p is 0, or 1 if they do not differ.

    a, b: [pairs], at least 2. least_spread: what s(d) is at least taken to be: scores of a few
    answers may agree by chance, and then show no spread where there is one.

    d is 1, 2 and 3: mean 2, s = 1, and 4.303/√3 on either side.

    >>> found = paired_difference([2, 4, 6], [1, 2, 3])
    >>> found.mean, round(found.low, 2), round(found.high, 2), round(found.p_value, 3)
    (2.0, -0.48, 4.48, 0.074)
    """
    check_number("confidence", confidence, least=0.5, most=1 - 1e-9)
    change = differences(a, b, least=2)
    pairs = len(change)
    error = max(_deviation(change), least_spread) / math.sqrt(pairs)
    return Difference(float(change.mean()), error, pairs - 1, pairs, confidence)


def unpaired_difference(
    a: Sample, b: Sample, *, confidence: float = CONFIDENCE, least_spread: float = 0.0
) -> Difference:
    """Return the difference of the means of samples that are not paired, by Welch's t.

    With v = s²/n of each sample: mean(a) - mean(b) ± t · √(v_a + v_b), at
    (v_a + v_b)² / (v_a²/(n_a - 1) + v_b²/(n_b - 1)) degrees of freedom (Welch 1947): samples may
    differ in size and in spread.

    a: [numbers], b: [numbers], at least 2 each. least_spread: what s is at least taken to be.

    Means 2 and 5, v = 1/3 each: 3 in steps of 0.816, with 4 degrees of freedom.

    >>> found = unpaired_difference([1, 2, 3], [4, 5, 6])
    >>> found.mean, round(found.low, 2), round(found.p_value, 3), found.paired
    (-3.0, -5.27, 0.021, False)
    """
    check_number("confidence", confidence, least=0.5, most=1 - 1e-9)
    ours, theirs = sample("a", a, least=2), sample("b", b, least=2)
    spreads = [max(_deviation(p), least_spread) ** 2 / len(p) for p in (ours, theirs)]
    variance = sum(spreads)
    terms = [v**2 / (len(p) - 1) for v, p in zip(spreads, (ours, theirs), strict=True)]
    freedom = variance**2 / sum(terms) if variance else 1.0
    mean = float(ours.mean() - theirs.mean())
    return Difference(mean, math.sqrt(variance), freedom, confidence=confidence)


def _deviation(values: Numbers) -> float:
    return 0.0 if np.ptp(values) <= ALIKE else float(np.std(values, ddof=1))
