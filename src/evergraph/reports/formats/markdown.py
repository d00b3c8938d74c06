"""A table as Markdown."""

from __future__ import annotations

import re

from evergraph.reports.tables.record import Cell, Table

MARKS = {0: "{}", 1: "**{}**", 2: "<u>{}</u>"}


def markdown(table: Table) -> str:
    """Return the table as Markdown, its caption below."""
    head = [escaped(column.name) for column in table.columns]
    rules = ["--:" if column.numbers else "---" for column in table.columns]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    lines = [f"| {' | '.join(row)} |" for row in (head, rules, *rows)]
    return "\n".join([*lines, "", escaped(table.caption), ""])


def _cell(cell: Cell) -> str:
    return MARKS[cell.rank].format(escaped(cell.text))


def escaped(text: str) -> str:
    r"""Return text that Markdown shows as it is.

    >>> print(escaped("a|b <c> *d*"))
    a\|b \<c> \*d\*
    """
    return re.sub(r"([\\`*|<\[])", r"\\\1", " ".join(text.split()))
