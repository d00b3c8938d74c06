"""Comparison of two methods on a dataset, and of many over datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import inf
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from evergraph.core.errors import ResultsError
from evergraph.evaluation.evaluator import main_key
from evergraph.evaluation.statistics import (
    CONFIDENCE,
    LEAST_DATASETS,
    LEAST_PAIRS,
    Difference,
    Ranks,
    SignedRanks,
    holm,
    nemenyi,
    paired_difference,
    unpaired_difference,
    wilcoxon,
)
from evergraph.experiments.presets import POOLED
from evergraph.reports.runs import Finished, Group, names_of, p_text, way_of
from evergraph.reports.trials import Pairing, Trials, check_comparable, pair, trials_of
from evergraph.streams.task import TESTINGS

if TYPE_CHECKING:
    from evergraph.experiments.result import RunResult

REMEDIES = {
    "one seed": ", which shows no spread: run both with at least 2 of the same seeds",
    "identical repeats": ", which count as one: stream.split_seed=run gives each seed its own "
    "split",
}
Verdict = Literal["better", "worse", "cannot tell", "one seed", "identical repeats"]


def points(difference: float, *, signed: bool = False) -> str:
    """Return a fraction as percentage points; a value that rounds to 0 has no sign.

    >>> points(0.768, signed=True), points(-0.0123), points(-0.0001, signed=True)
    ('+76.8', '-1.2', '0.0')
    """
    text = f"{100 * difference:+.1f}" if signed else f"{100 * difference:.1f}"
    return "0.0" if float(text) == 0 else text


def listed(words: list[str]) -> str:
    """Return words as an enumeration in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True, repr=False)
class Comparison:
    """The difference between two configurations, and whether it is more than chance.

    Attributes:
        a, b: the configurations.
        pairing: the repeats that are compared.
        difference: of a to b, with its confidence interval, which excludes 0 if there is a claim.
        confidence: a claim needs a p-value below 1 - confidence.
        corrected_p: the p-value among many comparisons, see ``corrected``; None for a single one.
    """

    a: Trials
    b: Trials
    pairing: Pairing
    difference: Difference
    confidence: float
    corrected_p: float | None = None

    @property
    def mean_a(self) -> float:
        """Mean AA of a over the compared repeats, a fraction."""
        return fmean(self.pairing.a)

    @property
    def mean_b(self) -> float:
        """Mean AA of b over the compared repeats, a fraction."""
        return fmean(self.pairing.b)

    @property
    def p_value(self) -> float:
        """The p-value of the difference, corrected if several comparisons were made."""
        return self.difference.p_value if self.corrected_p is None else self.corrected_p

    @property
    def verdict(self) -> Verdict:
        """The verdict on a: ``better`` or ``worse`` only if the difference is more than chance."""
        if self.pairing.basis in ("one seed", "identical repeats"):
            return self.pairing.basis
        if self.p_value >= 1 - self.confidence:
            return "cannot tell"
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def sentence(self) -> str:
        """The verdict with its numbers, in percent and percentage points, and the evidence."""
        a, b, where = self.a.name, self.b.name, self.a.where
        pairing = self.pairing
        claim = f"cannot tell {a} from {b} on {where}"
        if self.verdict in ("better", "worse"):
            claim = f"{a} is {self.verdict} than {b} on {where}"
        gap = points(self.difference.mean, signed=True)
        numbers = f"{points(self.mean_a)} against {points(self.mean_b)}, {gap} points"
        if not pairing.shows_spread:
            return f"{claim}: {numbers} ({self.verdict}{REMEDIES[self.verdict]})."
        repeats = "seeds and overlapping splits" if self.a.resplit else "seeds of one split"
        counts = len(pairing.seeds_a), len(pairing.seeds_b)
        samples = f"{counts[0]} paired {repeats}"
        if pairing.basis == "unpaired seeds":
            samples = f"{counts[0]} and {counts[1]} unpaired {repeats}"
        if (len(pairing.a), len(pairing.b)) != counts:
            samples += ", identical repeats counted once"
        interval = f"{points(self.difference.low)} to {points(self.difference.high)}"
        level = f"{100 * self.confidence:.4g} %"
        evidence = [f"{level} interval {interval}", samples, p_text(self.p_value)]
        if self.corrected_p is not None:
            evidence.append("interval and p corrected by Holm")
        for name, seeds in pairing.left_out.items():
            word = "seeds" if len(seeds) > 1 else "seed"
            numbered = f"{word} {listed([str(seed) for seed in seeds])}"
            evidence.append(f"without {numbered}, which only {name} has")
        return f"{claim}: {numbers} ({', '.join(evidence)})."

    def __repr__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; scores are fractions."""
        difference, spread = self.difference, self.pairing.shows_spread
        return {
            "a": self.a.name,
            "b": self.b.name,
            "dataset": self.a.dataset,
            "setting": self.a.setting,
            "metric": self.a.metric,
            "testing": self.a.way[0],
            "averaging": self.a.way[1],
            "verdict": self.verdict,
            "sentence": self.sentence,
            "mean_a": self.mean_a,
            "mean_b": self.mean_b,
            "difference": difference.mean,
            "confidence": self.confidence,
            "low": difference.low if spread else None,
            "high": difference.high if spread else None,
            "p_value": difference.p_value if spread else None,
            "corrected_p": self.corrected_p,
            "over": self.pairing.basis,
            "seeds_a": list(self.pairing.seeds_a),
            "seeds_b": list(self.pairing.seeds_b),
        }


def compare(
    a: RunResult,
    b: RunResult,
    *,
    testing: str | None = None,
    averaging: str | None = None,
    confidence: float = CONFIDENCE,
) -> Comparison:
    """Return the difference between two results; printed, it is one sentence.

    Repeats are paired by seed if at least two seeds are shared, else compared as two samples; a
    single seed allows no claim. See docs/comparing.md.

    Args:
        a, b: results of runs on the same stream.
        testing: ``local`` or ``global``; by default that of the protocol, else local.
        averaging: ``balanced`` or ``plain``, or a metric of targets; by default that of the
            protocol, else the main one.
        confidence: confidence level of the interval.
    """
    runs = [Finished(Path(), result.to_dict()) for result in (a, b)]
    way = way_of(runs[0].result, testing, averaging)
    names = [run.method for run in runs]
    if names[0] == names[1]:
        names = [f"{names[0]} (first)", f"{names[1]} (second)"]
    trials = [trials_of(run, way, name=name) for run, name in zip(runs, names, strict=True)]
    return compare_trials(trials[0], trials[1], confidence=confidence)


def compare_trials(a: Trials, b: Trials, *, confidence: float = CONFIDENCE) -> Comparison:
    """Return the same for repeats from any source."""
    check_comparable(a, b)
    pairing = pair(a, b)
    if pairing.shows_spread:
        test = paired_difference if pairing.basis == "paired seeds" else unpaired_difference
        difference = test(
            pairing.a,
            pairing.b,
            confidence=confidence,
            least_spread=max(a.resolution, b.resolution),
            overlap=max(a.overlap, b.overlap),
        )
    else:
        gap = fmean(pairing.a) - fmean(pairing.b)
        difference = Difference(gap, error=inf, freedom=1, confidence=confidence)
    return Comparison(a, b, pairing, difference, confidence)


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return comparisons with p-values corrected by Holm for their number.

    Intervals are widened so that they exclude 0 exactly if the corrected p-value makes a claim.
    Comparisons without spread are not tested and do not count.
    """
    tested = [comparison for comparison in comparisons if comparison.pairing.shows_spread]
    if len(tested) < 2:
        return list(comparisons)
    p_values = iter(holm([comparison.difference.p_value for comparison in tested]))
    result = []
    for comparison in comparisons:
        if comparison.pairing.shows_spread:
            p_value = next(p_values)
            difference = comparison.difference
            share = difference.p_value / p_value if p_value else 1.0
            widened = replace(difference, confidence=1 - (1 - comparison.confidence) * share)
            comparison = replace(comparison, corrected_p=p_value, difference=widened)
        result.append(comparison)
    return result


@dataclass(frozen=True, repr=False)
class OverDatasets:
    """Wilcoxon's test of a against b over the datasets of one setting; see ``Comparison``."""

    a: str
    b: str
    setting: str
    datasets: tuple[str, ...]
    ranks: SignedRanks
    confidence: float

    @property
    def verdict(self) -> Literal["better", "worse", "cannot tell"]:
        """The verdict on a over all datasets."""
        if len(self.datasets) < LEAST_PAIRS or self.ranks.p_value >= 1 - self.confidence:
            return "cannot tell"
        return "better" if self.ranks.won > self.ranks.lost else "worse"

    @property
    def sentence(self) -> str:
        """The verdict with its numbers."""
        count, ranks = len(self.datasets), self.ranks
        tested = f"Wilcoxon's signed ranks, {p_text(ranks.p_value)}"
        if count < LEAST_PAIRS:
            tested = f"too few datasets for Wilcoxon's test, which needs {LEAST_PAIRS}"
        claim = f"{self.a} is {self.verdict} than {self.b}"
        if self.verdict == "cannot tell":
            claim = f"cannot tell {self.a} from {self.b}"
        ahead = f"ahead on {ranks.wins} and behind on {ranks.losses}"
        return f"{claim} over {count} datasets, {self.setting}: {ahead} ({tested})."

    def __repr__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "a": self.a,
            "b": self.b,
            "setting": self.setting,
            "datasets": list(self.datasets),
            "verdict": self.verdict,
            "sentence": self.sentence,
            "wins": self.ranks.wins,
            "losses": self.ranks.losses,
            "p_value": self.ranks.p_value,
        }


def over_datasets(comparisons: Sequence[Comparison]) -> list[OverDatasets]:
    """Return a test for each setting with several datasets.

    A dataset counts once, with its means over repeats, whatever their spread.
    """
    by_setting: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_setting.setdefault(comparison.a.setting, []).append(comparison)
    return [
        OverDatasets(
            alike[0].a.name,
            alike[0].b.name,
            setting,
            datasets=tuple(comparison.a.dataset for comparison in alike),
            ranks=wilcoxon([c.mean_a for c in alike], [c.mean_b for c in alike]),
            confidence=alike[0].confidence,
        )
        for setting, alike in by_setting.items()
        if len(alike) > 1
    ]


@dataclass(frozen=True)
class GroupDifferences:
    """The differences of all runs of a group to the reference."""

    reference: str
    means: Mapping[str, float]  # AA of every run
    comparisons: Mapping[str, Comparison | None]  # of the others with it; None: not comparable


def differences_in(group: Group, testing: str, against: str | None = None) -> GroupDifferences:
    """Return the differences for one way of testing; against: the reference, by default the best.

    p-values are corrected by ``holm``: for all pairs of the group if the reference is the best,
    since the same numbers select it, and for the comparisons made if it is given.
    """
    runs = {
        entry.name: trials_of(entry.run, (testing, main_key(entry.run.result)), name=entry.name)
        for entry in group.entries
    }
    means = {name: trials.mean for name, trials in runs.items()}
    reference = against if against in runs else max(means, key=lambda name: means[name])
    if against is None:
        # The reference is always the second of a pair.
        pairs = [(b, a) if a == reference else (a, b) for a, b in combinations(runs, 2)]
    else:
        pairs = [(name, reference) for name in runs if name != reference]
    tested: dict[tuple[str, str], Comparison] = {}
    for a, b in pairs:
        with suppress(ResultsError):  # not comparable
            tested[a, b] = compare_trials(runs[a], runs[b])
    by_pair = dict(zip(tested, corrected(list(tested.values())), strict=True))
    comparisons = {a: by_pair.get((a, b)) for a, b in pairs if b == reference}
    return GroupDifferences(reference, means, comparisons)


@dataclass(frozen=True)
class Standing:
    """Mean ranks over several datasets of one setting, for one way of testing."""

    setting: str
    testing: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]  # run on all of them, the best mean rank first
    left_out: tuple[str, ...]  # were not, or predict whole test sets together
    ranks: Ranks  # of ``methods``


def standings(groups: Sequence[Group]) -> list[Standing]:
    """Return the standing for each setting with at least 3 datasets and each way of testing."""
    by_setting: dict[str, list[Group]] = {}
    for group in groups:
        by_setting.setdefault(group.setting, []).append(group)
    result = []
    for alike, testing in product(by_setting.values(), TESTINGS):
        # A method that predicts whole test sets together has more to go by than the others.
        scores = [
            {
                entry.name: entry.accuracy(testing)
                for entry in group.entries
                if not str(entry.run.result["config"]["method"]["name"]).endswith(POOLED)
            }
            for group in alike
        ]
        everywhere = [name for name in scores[0] if all(name in by_name for by_name in scores)]
        if len(alike) < LEAST_DATASETS or len(everywhere) < 2:
            continue
        ranks = nemenyi([[by_name[name] for name in everywhere] for by_name in scores])
        mean_ranks = dict(zip(everywhere, ranks.mean_ranks, strict=True))
        order = sorted(everywhere, key=lambda name: mean_ranks[name])
        result.append(
            Standing(
                setting=alike[0].setting,
                testing=testing,
                datasets=tuple(group.dataset for group in alike),
                methods=tuple(order),
                left_out=tuple(sorted(set(names_of(alike)) - set(order))),
                ranks=nemenyi([[by_name[name] for name in order] for by_name in scores]),
            )
        )
    return result
