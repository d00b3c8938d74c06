"""All figures of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from evergraph.reports.figures.bars import local_global, time_phases
from evergraph.reports.figures.frontier import BYTES, SECONDS, frontier, memory_accuracy
from evergraph.reports.figures.learning import accuracy_matrix, learning_curves
from evergraph.reports.figures.picture import Picture, looks_of
from evergraph.reports.runs import Group, names_of
from evergraph.reports.units import families, family_of, has_family

MOST_NAMES = 20  # that are readable in one scatter plot


def gallery(groups: Sequence[Group]) -> dict[str, list[Picture]]:
    """Draw all figures, by section of the page; a method has the same look in all of them.

    The frontier is drawn for groups with families of runs, memory for those without too many names,
    ranks for each setting with several datasets and each way of testing.
    """
    names = names_of(groups)
    kin = sorted({family_of(name) for name in names})
    looks = looks_of([*kin, *(name for name in names if name not in kin)])
    drawn: dict[str, list[Picture]] = defaultdict(list)
    for group in groups:
        drawn["curves"].append(learning_curves(group, looks))
        drawn["local-global"].append(local_global(group))
        if has_family(group):
            drawn["frontier"] += [frontier(group, looks, price) for price in (BYTES, SECONDS)]
        if len(families(group)) <= MOST_NAMES:
            ways = ("local", "global")
            drawn["memory-accuracy"] += [memory_accuracy(group, looks, way) for way in ways]
        drawn["time"].append(time_phases(group))
        drawn["matrices"] += [accuracy_matrix(group, entry) for entry in group.entries]
    if any(len(group.entries) > 1 for group in groups):  # else there is nothing to compare
        from evergraph.reports.comparing import standings
        from evergraph.reports.figures.critical_difference import critical_difference

        drawn["ranks"] = list(map(critical_difference, standings(groups)))
    return drawn
