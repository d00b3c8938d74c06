"""What may be claimed of two configurations on one dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from evergraph.evaluation.statistics import (
    Difference,
    holm,
    paired_difference,
    unpaired_difference,
)
from evergraph.evaluation.statistics.difference import CONFIDENCE
from evergraph.reports.comparing.pairing import Pairing, check_comparable, pair
from evergraph.reports.comparing.trials import Trials, trials_of, way_of
from evergraph.reports.runs import Finished

if TYPE_CHECKING:
    from evergraph.experiments.result import RunResult

Verdict = Literal["better", "worse", "cannot tell", "one seed", "identical repeats"]


@dataclass(frozen=True, repr=False)
class Comparison:
    """How much better one configuration is than another, and whether that is more than chance.

    Attributes:
        a, b: what is compared.
        pairing: the repeats of both that belong together.
        difference: of a to b, with its confidence interval; without 0 where there is a claim.
        confidence: a claim needs a p below what it leaves.
        corrected_p: the p-value among many comparisons, see ``corrected``; None for one alone.
    """

    a: Trials
    b: Trials
    pairing: Pairing
    difference: Difference
    confidence: float
    corrected_p: float | None = None

    @property
    def mean_a(self) -> float:
        """AA of the repeats compared, a fraction."""
        return fmean(self.pairing.a)

    @property
    def mean_b(self) -> float:
        """The same of the other."""
        return fmean(self.pairing.b)

    @property
    def p_value(self) -> float:
        """Of the difference, among all comparisons that were made at once."""
        return self.difference.p_value if self.corrected_p is None else self.corrected_p

    @property
    def verdict(self) -> Verdict:
        """What holds of a: ``better`` or ``worse`` only where that is more than chance."""
        if self.pairing.basis in ("one seed", "identical repeats"):
            return self.pairing.basis
        if self.p_value >= 1 - self.confidence:
            return "cannot tell"
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def sentence(self) -> str:
        """The verdict with its numbers."""
        from evergraph.reports.comparing.wording import sentence

        return sentence(self)

    def __repr__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; scores are fractions."""
        found, spread = self.difference, self.pairing.shows_spread
        return {
            "a": self.a.name, "b": self.b.name, "dataset": self.a.dataset,
            "setting": self.a.setting, "metric": self.a.metric,
            "testing": self.a.way[0], "averaging": self.a.way[1],
            "verdict": self.verdict, "sentence": self.sentence,
            "mean_a": self.mean_a, "mean_b": self.mean_b, "difference": found.mean,
            "confidence": self.confidence,
            "low": found.low if spread else None, "high": found.high if spread else None,
            "p_value": found.p_value if spread else None, "corrected_p": self.corrected_p,
            "over": self.pairing.basis, "seeds_a": list(self.pairing.ours),
            "seeds_b": list(self.pairing.theirs),
        }  # fmt: skip


def compare(
    a: RunResult,
    b: RunResult,
    *,
    testing: str | None = None,
    averaging: str | None = None,
    confidence: float = CONFIDENCE,
) -> Comparison:
    """Return by how much one result is better than another; printed, it is one sentence.

    Repeats are paired by seed where both have at least two of the same, else compared as two
    samples; of a single seed nothing is claimed. See docs/statistics.md.

    Args:
        a, b: results of runs on the same stream.
        testing: ``local`` or ``global``; averaging: ``balanced`` or ``plain``, or what targets have
            in their place; that of the protocol unless given, else local and the main one.
        confidence: of the interval.
    """
    runs = [Finished(Path(), result.to_dict()) for result in (a, b)]
    way = way_of(runs[0].result, testing, averaging)
    names = [run.method for run in runs]
    if names[0] == names[1]:
        names = [f"{names[0]} (first)", f"{names[1]} (second)"]
    ours, theirs = (trials_of(r, way, name=name) for r, name in zip(runs, names, strict=True))
    return compare_trials(ours, theirs, confidence=confidence)


def compare_trials(a: Trials, b: Trials, *, confidence: float = CONFIDENCE) -> Comparison:
    """Return the same for repeats that were read from anywhere."""
    check_comparable(a, b)
    pairing = pair(a, b)
    if pairing.shows_spread:
        measure = paired_difference if pairing.basis == "paired seeds" else unpaired_difference
        least = max(a.resolution, b.resolution)
        found = measure(pairing.a, pairing.b, confidence=confidence, least_spread=least)
    else:
        gap = fmean(pairing.a) - fmean(pairing.b)
        found = Difference(gap, error=inf, freedom=1, confidence=confidence)
    return Comparison(a, b, pairing, found, confidence)


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return comparisons made at once, p-values corrected by Holm for how many they are.

    An interval becomes as wide as it must be to leave out 0 just where the corrected p makes a
    claim. What shows no spread is not tested, and takes no part in it.
    """
    tested = [found for found in comparisons if found.pairing.shows_spread]
    if len(tested) < 2:
        return list(comparisons)
    p_values = iter(holm([found.difference.p_value for found in tested]))
    return [_one_of_many(c, next(p_values)) if c.pairing.shows_spread else c for c in comparisons]


def _one_of_many(found: Comparison, p_value: float) -> Comparison:
    share = found.difference.p_value / p_value if p_value else 1.0
    wide = replace(found.difference, confidence=1 - (1 - found.confidence) * share)
    return replace(found, corrected_p=p_value, difference=wide)
