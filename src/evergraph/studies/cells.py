"""Numbers as a page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evergraph.reports.tables.record import Cell


def spread(value: Mapping[str, Any] | None, *, scale: float = 1.0) -> str:
    """Return a mean and its deviation, where one was measured.

    >>> spread({"mean": 0.532, "std": 0.002}, scale=100)
    '53.2 ± 0.2'
    >>> spread({"mean": 53.2, "std": None})
    '53.2'
    """
    if value is None:
        return "-"
    mean = f"{scale * value['mean']:.1f}"
    return mean if value["std"] is None else f"{mean} ± {scale * value['std']:.1f}"


def difference(ours: float | None, papers: float | None) -> str:
    """Return ours minus the paper's, with its sign.

    >>> difference(53.0, 53.2), difference(53.0, None)
    ('-0.2', '-')
    """
    return "-" if ours is None or papers is None else f"{ours - papers:+.1f}"


def within(ours: float, papers: Mapping[str, Any]) -> str:
    """Return whether ours is as near to the paper's AA as its preset tolerates, with the tolerance.

    >>> papers = {"average_accuracy": {"mean": 53.2}, "tolerance": 5.0}
    >>> within(49.0, papers), within(48.0, papers), within(49.0, {})
    ('yes (5.0)', 'no (5.0)', '-')
    """
    if "tolerance" not in papers:
        return "-"
    tolerance = papers["tolerance"]
    near = abs(ours - papers["average_accuracy"]["mean"]) <= tolerance
    return f"{'yes' if near else 'no'} ({tolerance})"


def marked(cells: Sequence[str], values: Sequence[float | None]) -> list[Cell]:
    """Return cells of which the best and the second best are known as such.

    >>> [cell.rank for cell in marked(["a", "b", "c"], [1.0, 3.0, 2.0])]
    [0, 1, 2]
    """
    known = sorted({value for value in values if value is not None}, reverse=True)
    ranks = {value: rank for rank, value in enumerate(known[:2], start=1)}
    pairs = zip(cells, values, strict=True)
    return [Cell(cell, rank=0 if value is None else ranks.get(value, 0)) for cell, value in pairs]


def balanced(result: Mapping[str, Any] | None, metric: str, testing: str = "local") -> Any:
    """Return the class-balanced mean and deviation of a result, None without one."""
    return None if result is None else result[metric][testing]["balanced"]
