"""Numbers of runs in the units people read, and the most that can be had for a price."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evergraph.reports.runs import Entry, Finished, Group

ALL = "all data"  # what a run keeps that is given every earlier task again


def percent(spread: Mapping[str, Any]) -> str:
    """Return a mean in percent, and its deviation where there are several seeds.

    >>> percent({"mean": 0.668, "std": 0.004}), percent({"mean": 0.668, "std": None})
    ('66.8 ± 0.4', '66.8')
    """
    mean = f"{100 * spread['mean']:.1f}"
    return mean if spread["std"] is None else f"{mean} ± {100 * spread['std']:.1f}"


def seeds_of(run: Finished) -> int:
    """Return how many repeats a run has."""
    return len(run.result["accuracy_matrix"])


def seconds_a_seed(run: Finished, phase: str) -> float:
    """Return the seconds of a phase, or in total, that one repeat took: the mean over seeds."""
    return float(run.result["seconds"][phase]) / seeds_of(run)


def deviations(runs: Iterable[Finished]) -> str:
    """Return how numbers over seeds are written, where any run has several."""
    several = any(seeds_of(run) > 1 for run in runs)
    return ", mean ± standard deviation over seeds" if several else ""


def kept_bytes(run: Finished) -> str:
    """Return what a run keeps between tasks as people write it."""
    return ALL if run.keeps_everything else size(run.result["memory"]["bytes"])


def size(count: int) -> str:
    """Return a number of bytes as people write it.

    >>> size(0), size(1500), size(18_400_000)
    ('-', '1.5 kB', '18.4 MB')
    """
    if count == 0:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def count_of(count: int) -> str:
    """Return a number of values as the paper writes it.

    >>> count_of(0), count_of(950), count_of(61_000_000)
    ('-', '950', '61.0M')
    """
    if count == 0:
        return "-"
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f}{unit}"
    return str(count)


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
