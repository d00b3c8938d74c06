"""Whether one of two methods wins more often and by more, over pairs of scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from evergraph.evaluation.statistics.difference import ALIKE
from evergraph.evaluation.statistics.samples import Numbers, Sample, differences, rising_ranks

EXACT = 50  # pairs, up to which every outcome is counted
LEAST_PAIRS = 6  # below which no outcome has a two-sided p below 0.05: 2/2^5 is 0.0625


@dataclass(frozen=True)
class SignedRanks:
    """What became of Wilcoxon's test.

    Attributes:
        wins, losses: pairs in which the first is ahead, and the second; ties are neither.
        won, lost: the sums of their ranks.
        p_value: how probable sums this far apart are if there is no difference; two-sided.
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

    Pairs are ranked by how far they lie apart, the closest first, equal ones by their mean rank; T
    is the smaller of the sum of ranks of wins and that of losses. Pairs without a difference
    are left out. Up to 50 pairs p is exact, whatever is tied: of the 2ⁿ ways to give signs to the
    ranks, the share whose T is no larger. Beyond, it is normal, corrected for ties.

    a, b: [pairs]

    Ranks 1, 2 and 3 are won and none is lost: 2 of 8 ways have sums as far apart.

    >>> wilcoxon([2, 4, 6], [1, 2, 3])
    SignedRanks(wins=3, losses=0, won=6.0, lost=0.0, p_value=0.25)
    """
    change = differences(a, b, least=1)
    change = change[np.abs(change) > ALIKE]
    ranks = rising_ranks(np.abs(change))
    won, lost = float(ranks[change > 0].sum()), float(ranks[change < 0].sum())
    least = min(won, lost)
    p_value = _exact(ranks, least) if len(ranks) <= EXACT else _normal(ranks, least)
    wins, losses = int((change > 0).sum()), int((change < 0).sum())
    return SignedRanks(wins, losses, won, lost, min(1.0, p_value))


def _exact(ranks: Numbers, least: float) -> float:
    """Return twice the share of all signs for which a sum of ranks is no larger than ``least``."""
    doubled = np.round(2 * ranks).astype(int)  # a mean rank may end in a half
    ways = np.ones(1)
    for rank in doubled:
        with_it = np.zeros(len(ways) + rank)
        with_it[rank:] = ways
        with_it[: len(ways)] += ways
        ways = with_it / 2
    return float(2 * ways[: round(2 * least) + 1].sum())


def _normal(ranks: Numbers, least: float) -> float:
    return float(2 * ndtr((least - ranks.sum() / 2) / math.sqrt(float((ranks**2).sum()) / 4)))
