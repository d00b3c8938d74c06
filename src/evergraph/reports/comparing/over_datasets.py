"""Two configurations over many datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evergraph.evaluation.statistics import SignedRanks, wilcoxon
from evergraph.evaluation.statistics.wilcoxon import LEAST_PAIRS
from evergraph.reports.comparing.comparison import Comparison
from evergraph.reports.comparing.wording import p_text


@dataclass(frozen=True, repr=False)
class OverDatasets:
    """Wilcoxon's test over the datasets of one setting.

    Attributes:
        a, b: what is compared.
        setting: in which.
        datasets: on which.
        ranks: the test.
        confidence: a claim needs a p below what it leaves.
    """

    a: str
    b: str
    setting: str
    datasets: tuple[str, ...]
    ranks: SignedRanks
    confidence: float

    @property
    def verdict(self) -> Literal["better", "worse", "cannot tell"]:
        """What holds of a over all of them."""
        if len(self.datasets) < LEAST_PAIRS or self.ranks.p_value >= 1 - self.confidence:
            return "cannot tell"
        return "better" if self.ranks.won > self.ranks.lost else "worse"

    @property
    def sentence(self) -> str:
        """The verdict with its numbers."""
        count, ranks = len(self.datasets), self.ranks
        won = f"on {ranks.wins} and behind on {ranks.losses}"
        tested = f"Wilcoxon's signed ranks, {p_text(ranks.p_value)}"
        where = f"over {count} datasets, {self.setting}"
        if count < LEAST_PAIRS:
            tested = f"too few datasets for Wilcoxon's test, which takes {LEAST_PAIRS}"
        if self.verdict == "cannot tell":
            return f"cannot tell {self.a} from {self.b} {where}: ahead {won} ({tested})."
        return f"{self.a} is {self.verdict} than {self.b} {where}: ahead {won} ({tested})."

    def __repr__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "a": self.a, "b": self.b, "setting": self.setting, "datasets": list(self.datasets),
            "verdict": self.verdict, "sentence": self.sentence, "wins": self.ranks.wins,
            "losses": self.ranks.losses, "p_value": self.ranks.p_value,
        }  # fmt: skip


def over_datasets(comparisons: Sequence[Comparison]) -> list[OverDatasets]:
    """Return a test for each setting in which there are several datasets.

    A dataset counts once, with its means over repeats, however these are spread.
    """
    by_setting: dict[str, list[Comparison]] = {}
    for found in comparisons:
        by_setting.setdefault(found.a.setting, []).append(found)
    return [_over(setting, found) for setting, found in by_setting.items() if len(found) > 1]


def _over(setting: str, found: Sequence[Comparison]) -> OverDatasets:
    ranks = wilcoxon([each.mean_a for each in found], [each.mean_b for each in found])
    datasets = tuple(each.a.dataset for each in found)
    first = found[0]
    return OverDatasets(first.a.name, first.b.name, setting, datasets, ranks, first.confidence)
