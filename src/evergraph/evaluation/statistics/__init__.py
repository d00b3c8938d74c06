"""Whether a difference between scores is more than chance: pure functions of numbers."""

from evergraph.evaluation.statistics.difference import (
    Difference,
    paired_difference,
    unpaired_difference,
)
from evergraph.evaluation.statistics.holm import holm
from evergraph.evaluation.statistics.ranks import Ranks, nemenyi
from evergraph.evaluation.statistics.wilcoxon import SignedRanks, wilcoxon

__all__ = [
    "Difference",
    "Ranks",
    "SignedRanks",
    "holm",
    "nemenyi",
    "paired_difference",
    "unpaired_difference",
    "wilcoxon",
]
