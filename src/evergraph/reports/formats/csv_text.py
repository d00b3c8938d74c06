"""A table as CSV: every number with all its digits."""

from __future__ import annotations

import csv
import io

from evergraph.reports.tables.record import Cell, Column, Table


def csv_text(table: Table) -> str:
    """Return the table as CSV; a mean and its deviation have a column each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for column in table.columns for name in column.numbers or (column.name,)])
    for row in table.rows:
        writer.writerow(
            [
                value
                for c, cell in zip(table.columns, row, strict=True)
                for value in _values(c, cell)
            ]
        )
    return text.getvalue()


def _values(column: Column, cell: Cell) -> list[str]:
    if not column.numbers:
        return [cell.text]
    told = ["" if number is None else repr(number) for number in cell.numbers]
    return told or ["" for _ in column.numbers]
