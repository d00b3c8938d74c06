"""The most that can be had for a price: several runs of one method read as one curve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from evergraph.reports.runs import Entry, Group
from evergraph.reports.units import seconds_a_seed

Points = Iterable[tuple[float, float]]
"""(cost, value) pairs: a run each."""


def envelope(points: Points) -> list[tuple[float, float]]:
    """Return the points that beat all cheaper ones, the cheapest first: cost and value both rise.

    >>> envelope([(10, 0.7), (1, 0.5), (5, 0.4), (10, 0.8), (20, 0.8)])
    [(1, 0.5), (10, 0.8)]
    """
    rising: list[tuple[float, float]] = []
    for cost, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not rising or value > rising[-1][1]:
            rising.append((cost, value))
    return rising


def best_within(points: Points, budget: float) -> float | None:
    """Return the highest value that costs no more than a budget, None where nothing does.

    >>> runs = [(1, 0.5), (5, 0.4), (10, 0.8)]
    >>> best_within(runs, 9), best_within(runs, 10), best_within(runs, 0.5)
    (0.5, 0.8, None)
    """
    return max((value for cost, value in points if cost <= budget), default=None)


def family_of(name: str) -> str:
    """Return a run's name without what stands after the first ``@``, which tells it from its kin.

    >>> family_of("tem@budget=50"), family_of("er-gnn")
    ('tem', 'er-gnn')
    """
    return name.partition("@")[0].strip()


def families(group: Group) -> dict[str, Sequence[Entry]]:
    """Return the runs of a group by family, in the group's order."""
    found: dict[str, list[Entry]] = {}
    for entry in group.entries:
        found.setdefault(family_of(entry.name), []).append(entry)
    return dict(found)


def has_family(group: Group) -> bool:
    """Return whether any runs of a group are kin."""
    return any(len(runs) > 1 for runs in families(group).values())


def bytes_kept(entry: Entry) -> float:
    """Return what a run keeps between tasks; no end of it where that is all data."""
    return math.inf if entry.run.keeps_everything else float(entry.run.result["memory"]["bytes"])


def learning_seconds(entry: Entry) -> float:
    """Return the seconds that one repeat of a run spent learning: to embed and to train."""
    return seconds_a_seed(entry.run, "embed") + seconds_a_seed(entry.run, "train")
