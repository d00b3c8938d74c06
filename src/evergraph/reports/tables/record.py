"""A table before it has a format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evergraph.reports.groups import Entry, Group


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
    def rows(self) -> list[tuple[Cell, ...]]:
        """All rows, whatever they belong to."""
        return [row for block in self.blocks for row in block]


NAMED = (Column("method"), Column("dataset"), Column("setting"))


def named(group: Group, entry: Entry) -> tuple[Cell, ...]:
    """Return the cells of a run under ``NAMED``."""
    return Cell(entry.name), Cell(group.dataset), Cell(group.setting)


def numbers(columns: Sequence[str]) -> tuple[Column, ...]:
    """Return columns of one number a cell, under the same name in CSV."""
    return tuple(Column(name, (name,)) for name in columns)
