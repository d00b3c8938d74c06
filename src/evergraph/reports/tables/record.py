"""A table before it has a format, and the best of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evergraph.reports.runs import Entry, Finished, Group


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: its heading.
        numbers: what the numbers of its cells are called in CSV; none, and it holds text.
    """

    name: str
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        text: as people read it.
        numbers: as ``result.json`` has them, one each of ``Column.numbers``; the first one sorts.
            None at all where there is nothing to tell, and None for one that was not measured.
        rank: 1 if it is the best of its group, 2 if it is the second best, else 0.
        most: whether it is more than any number, and sorts so.
    """

    text: str
    numbers: tuple[float | None, ...] = ()
    rank: int = 0
    most: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: of its files.
        caption: one sentence on what it shows.
        columns: one each of the cells of a row.
        blocks: rows that belong together, ruled off from the next.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    blocks: tuple[tuple[tuple[Cell, ...], ...], ...]

    @property
    def constants(self) -> tuple[int, ...]:
        """The places of columns that say the same in every row, the first column never."""
        texts = [[row[place].text for row in self.rows] for place in range(len(self.columns))]
        several = len(self.rows) > 1
        return tuple(
            place
            for place, column in enumerate(texts)
            if place and len(set(column)) == 1 and (several or self.columns[place] in NAMED)
        )

    @property
    def headings(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def texts(self) -> list[list[str]]:
        """All rows as people read them."""
        return [[cell.text for cell in row] for row in self.rows]

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """All rows, whatever they belong to."""
        return [row for block in self.blocks for row in block]


NAMED = (Column("method"), Column("dataset"), Column("setting"))


def named(group: Group, entry: Entry) -> tuple[Cell, ...]:
    """Return the cells of a run under ``NAMED``, as a report calls it."""
    return Cell(entry.name), Cell(group.dataset), Cell(group.setting)


def own_names(run: Finished) -> tuple[Cell, ...]:
    """Return the cells of a run under ``NAMED``, as it calls itself."""
    return Cell(run.method), Cell(run.dataset), Cell(run.setting)


def numbers(columns: Sequence[str]) -> tuple[Column, ...]:
    """Return columns of one number a cell, under the same name in CSV."""
    return tuple(Column(name, (name,)) for name in columns)


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
