"""Formatted numbers of runs, their costs and families."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evergraph.reports.runs import Entry, Finished, Group

ALL = "all data"  # kept by a run that receives every earlier task again
Points = Iterable[tuple[float, float]]
"""(cost, value) pairs, one per run."""


def percent(spread: Mapping[str, Any] | None, *, scale: float = 100.0) -> str:
    """Return a mean in percent, with its deviation if there are several seeds; ``-`` for None.

    scale: 1 if it is in percent already.

    >>> percent({"mean": 0.668, "std": 0.004}), percent({"mean": 53.2, "std": None}, scale=1)
    ('66.8 ± 0.4', '53.2')
    """
    if spread is None:
        return "-"
    mean = f"{scale * spread['mean']:.1f}"
    return mean if spread["std"] is None else f"{mean} ± {scale * spread['std']:.1f}"


def seeds_of(run: Finished) -> int:
    """Return the number of repeats of a run."""
    return len(run.result["accuracy_matrix"])


def seconds_a_seed(run: Finished, phase: str) -> float:
    """Return the seconds of a phase, or in total, per repeat: the mean over seeds."""
    return float(run.result["seconds"][phase]) / seeds_of(run)


def deviations(runs: Iterable[Finished]) -> str:
    """Return the caption's words on deviations, if any run has several seeds."""
    several = any(seeds_of(run) > 1 for run in runs)
    return ", mean ± standard deviation over seeds" if several else ""


def size(count: int) -> str:
    """Return a number of bytes as text.

    >>> size(0), size(1500), size(18_400_000)
    ('-', '1.5 kB', '18.4 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B" if count else "-"


def count_of(count: int) -> str:
    """Return a number of values in the notation of the paper.

    >>> count_of(0), count_of(950), count_of(61_000_000)
    ('-', '950', '61.0M')
    """
    return size(count).replace(" ", "").replace("B", "")


def envelope(points: Points) -> list[tuple[float, float]]:
    """Return the points that beat all cheaper ones, in order of cost."""
    rising: list[tuple[float, float]] = []
    for cost, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not rising or value > rising[-1][1]:
            rising.append((cost, value))
    return rising


def family_of(name: str) -> str:
    """Return a run's name up to the first ``@``, which its family shares.

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
