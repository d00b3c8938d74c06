"""What each run keeps between tasks, side by side: the paper's memory table."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.runs import Finished
from evergraph.reports.table import kept_bytes

MEMORY_COLUMNS = (
    "method", "dataset", "setting",
    "samples", "gradients", "importance", "floats", "edges", "bytes",
)  # fmt: skip


def memory_comparison(runs: Sequence[Finished]) -> list[tuple[str, ...]]:
    """Return one row per run under ``MEMORY_COLUMNS``.

    Samples, gradients and importance are float32 values, as the paper counts them, and ``floats``
    their sum; edges are adjacency entries; bytes are what is really held, sparse where it can be.
    """
    return [_row(run) for run in runs]


def _row(run: Finished) -> tuple[str, ...]:
    kept = run.result["memory"]
    counts = [count_of(kept.get(part, 0)) for part in MEMORY_COLUMNS[3:-1]]
    return (run.method, run.dataset, run.setting, *counts, kept_bytes(run))


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
