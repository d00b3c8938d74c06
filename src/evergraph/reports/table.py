"""Runs side by side, in the units people read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evergraph.reports.runs import Finished

COLUMNS = (
    "method", "dataset", "setting", "AA local", "AF local", "AA global", "AF global",
    "memory", "covered", "seconds per seed",
)  # fmt: skip
ALL = "all data"  # what a run keeps that is given every earlier task again


def comparison(runs: Sequence[Finished]) -> list[tuple[str, ...]]:
    """Return one row per run under ``COLUMNS``; accuracies are class-balanced and in percent."""
    return [_row(run) for run in runs]


def failed(method: str, dataset: str, setting: str) -> tuple[str, ...]:
    """Return the row of a run without a result, under ``COLUMNS``."""
    known = (method, dataset, setting, "failed")
    return (*known, *("-" for _ in COLUMNS[len(known) :]))


def _row(run: Finished) -> tuple[str, ...]:
    result = run.result
    accuracies = [
        percent(result[metric][testing]["balanced"])
        for testing in ("local", "global")
        for metric in ("average_accuracy", "average_forgetting")
    ]
    covered = result["coverage_ratio"]
    return (
        run.method,
        run.dataset,
        run.setting,
        *accuracies,
        kept_bytes(run),
        "-" if covered is None else f"{100 * covered:.1f} %",
        f"{seconds_a_seed(run, 'total'):.1f}",
    )


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
