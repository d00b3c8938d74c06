"""The runs of one dataset and setting against the best of them, or against a chosen one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from evergraph.core.errors import ResultsError, UnknownNameError
from evergraph.experiments.spread import main_key
from evergraph.reports.comparing.comparison import Comparison, compare_trials, corrected
from evergraph.reports.comparing.trials import Trials, trials_of
from evergraph.reports.runs import Group, names_of


@dataclass(frozen=True)
class Differences:
    """What every run of a group differs by from one of them.

    Attributes:
        reference: the name of that one.
        means: AA of every run, by name; fractions.
        found: the comparison of each other run with it; None where they are not comparable.
    """

    reference: str
    means: Mapping[str, float]
    found: Mapping[str, Comparison | None]


def differences_in(group: Group, testing: str, against: str | None = None) -> Differences:
    """Return them for one way of testing; against: the run to compare with, the best unless given.

    p-values are corrected by ``holm``: for all pairs of the group where the best is compared with,
    since it is the best by the same numbers, and for the comparisons made where one is chosen.
    """
    runs = {
        entry.name: trials_of(entry.run, (testing, main_key(entry.run.result)), name=entry.name)
        for entry in group.entries
    }
    means = {name: trials.mean for name, trials in runs.items()}
    reference = against if against in runs else max(means, key=lambda name: means[name])
    every = combinations(runs, 2) if against is None else ((n, reference) for n in runs)
    pairs = [pair for pair in every if pair[0] != pair[1]]
    # The reference is always the second one.
    pairs = [(b, a) if a == reference else (a, b) for a, b in pairs]
    found = {pair: _compared(runs[pair[0]], runs[pair[1]]) for pair in pairs}
    tested = {pair: each for pair, each in found.items() if each is not None}
    told = found | dict(zip(tested, corrected(list(tested.values())), strict=True))
    return Differences(
        reference, means, {a: each for (a, b), each in told.items() if b == reference}
    )


def check_reference(groups: Sequence[Group], against: str | None) -> None:
    """Raise if no run has the name of the one to compare with."""
    if against is not None and against not in names_of(groups):
        raise UnknownNameError("run to compare with", against, names_of(groups))


def _compared(a: Trials, b: Trials) -> Comparison | None:
    try:
        return compare_trials(a, b)
    except ResultsError:
        return None
