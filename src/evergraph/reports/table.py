"""Runs side by side, in the units people read."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.collect import Finished

COLUMNS = (
    "method", "dataset", "setting", "AA local", "AF local", "AA global", "AF global",
    "memory", "covered", "seconds",
)  # fmt: skip


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
        size(result["memory"]["bytes"]),
        "-" if covered is None else f"{100 * covered:.1f} %",
        f"{result['seconds']['total']:.1f}",
    )


def percent(spread: dict[str, float]) -> str:
    """Return a mean and its deviation in percent.

    >>> percent({"mean": 0.668, "std": 0.004})
    '66.8 ± 0.4'
    """
    return f"{100 * spread['mean']:.1f} ± {100 * spread['std']:.1f}"


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
