"""What may be claimed of two configurations on one dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evergraph.evaluation.statistics import (
    Difference,
    SignedRanks,
    paired_difference,
    unpaired_difference,
    wilcoxon,
)
from evergraph.evaluation.statistics.difference import CONFIDENCE
from evergraph.evaluation.statistics.wilcoxon import LEAST_PAIRS
from evergraph.experiments.dotted import flat
from evergraph.reports.comparing.pairing import Pairing, check_comparable, pair
from evergraph.reports.comparing.trials import Trials, trials_of, way_of
from evergraph.reports.runs import Finished

if TYPE_CHECKING:
    from evergraph.experiments.result import RunResult

Verdict = Literal["better", "worse", "no difference", "cannot tell"]
NOT_LEARNED = ("seeds", "device", "plugins", "test_every", "measures")  # keys that change no method


@dataclass(frozen=True, repr=False)
class Comparison:
    """How much better one configuration is than another, and whether that is more than chance.

    Attributes:
        a, b: what is compared.
        pairing: over what: repeats, or tasks where repeats do not suffice.
        mean_a, mean_b: AA of the repeats compared, fractions.
        difference: of a to b, with its confidence interval.
        ranks: Wilcoxon's test over tasks; None where repeats are compared.
        confidence: of the interval; a claim needs a p below what it leaves.
        p_value: of the difference; over tasks the larger one of both tests.
        corrected_p: the same among many comparisons, see ``holm``; None for one alone.
    """

    a: Trials
    b: Trials
    pairing: Pairing
    mean_a: float
    mean_b: float
    difference: Difference
    ranks: SignedRanks | None
    confidence: float
    p_value: float
    corrected_p: float | None = None

    @property
    def same(self) -> bool:
        """Whether both are one configuration, so that only chance can tell them apart."""
        alike = _learned(self.a.config) == _learned(self.b.config)
        others = not set(self.pairing.ours) & set(self.pairing.theirs)
        return alike and others and self.a.versions == self.b.versions

    @property
    def verdict(self) -> Verdict:
        """What holds of a: ``better`` or ``worse`` only where that is more than chance.

        ``cannot tell`` where a single seed meets so few tasks that they never show anything.
        """
        by_tasks = self.pairing.basis == "tasks"
        if by_tasks and self.same:
            return "no difference"
        if by_tasks and self.difference.pairs < LEAST_PAIRS:
            return "cannot tell"
        p_value = self.p_value if self.corrected_p is None else self.corrected_p
        if p_value >= 1 - self.confidence:
            return "no difference"
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
        found = self.difference
        return {
            "a": self.a.name, "b": self.b.name, "dataset": self.a.dataset,
            "setting": self.a.setting, "metric": self.a.metric,
            "testing": self.a.way[0], "averaging": self.a.way[1],
            "verdict": self.verdict, "sentence": self.sentence,
            "mean_a": self.mean_a, "mean_b": self.mean_b, "difference": found.mean,
            "confidence": self.confidence, "low": found.low, "high": found.high,
            "p_value": self.p_value, "corrected_p": self.corrected_p,
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
    samples; with a single seed a side, results on each task are. See docs/statistics.md.

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
    if pairing.basis == "tasks":
        return _over_tasks(a, b, pairing, confidence)
    ours = [a.scores[seed] for seed in pairing.ours]
    theirs = [b.scores[seed] for seed in pairing.theirs]
    measure = paired_difference if pairing.basis == "paired seeds" else unpaired_difference
    least = max(a.resolution, b.resolution)
    found = measure(ours, theirs, confidence=confidence, least_spread=least)
    means = float(np.mean(ours)), float(np.mean(theirs))
    return Comparison(a, b, pairing, *means, found, None, confidence, found.p_value)


def _over_tasks(a: Trials, b: Trials, pairing: Pairing, confidence: float) -> Comparison:
    """Compare the last test's results on each task, the mean over repeats."""
    ours = np.mean([a.tasks[seed] for seed in pairing.ours], axis=0)
    theirs = np.mean([b.tasks[seed] for seed in pairing.theirs], axis=0)
    ranks = wilcoxon(ours, theirs)
    found = paired_difference(ours, theirs, confidence=confidence)
    p_value = max(found.p_value, ranks.p_value)
    means = float(ours.mean()), float(theirs.mean())
    return Comparison(a, b, pairing, *means, found, ranks, confidence, p_value)


def corrected(comparison: Comparison, p_value: float) -> Comparison:
    """Return a comparison that is one of many, with the p-value that it has among them."""
    return replace(comparison, corrected_p=p_value)


def _learned(config: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in flat(config).items() if k.partition(".")[0] not in NOT_LEARNED}
