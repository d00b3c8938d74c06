"""Numbers in the units people read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evergraph.reports.runs import Finished

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
