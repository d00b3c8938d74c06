"""The best and the second best of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evergraph.reports.tables.record import Cell


def ranked(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with the highest first numbers marked; a single cell beats nobody.

    What looks equal in percent with one decimal shares its rank.

    >>> [cell.rank for cell in ranked([Cell("", (x,)) for x in (0.5, 0.9, 0.9001, 0.7)])]
    [0, 1, 1, 2]
    """
    values = [round(100 * (cell.numbers[0] or 0.0), 1) for cell in cells]
    best = sorted(set(values), reverse=True)[:2]
    if len(cells) < 2 or len(best) < 2:
        return list(cells)
    ranks = {value: place for place, value in enumerate(best, start=1)}
    return [
        replace(cell, rank=ranks.get(value, 0)) for cell, value in zip(cells, values, strict=True)
    ]
