"""A table as HTML that report.js can sort."""

from __future__ import annotations

from html import escape

from evergraph.reports.tables.record import Cell, Column, Table

MARKS = {0: "{}", 1: "<b>{}</b>", 2: "<u>{}</u>"}


def html_table(table: Table) -> str:
    """Return the table in a box of its own, which scrolls sideways where it is too wide."""
    head = "".join(_heading(column) for column in table.columns)
    rows = "\n".join(
        _row(table, row, first=place == 0)
        for block in table.blocks
        for place, row in enumerate(block)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {escape(table.name)}">'
        f'<table id="table-{escape(table.name)}" class="sortable">'
        f"<caption><span>{escape(table.caption)}</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _heading(column: Column) -> str:
    kind = ' class="number"' if column.numbers else ""
    return f'<th scope="col"{kind}><button type="button">{escape(column.name)}</button></th>'


def _row(table: Table, row: tuple[Cell, ...], *, first: bool) -> str:
    cells = "".join(_cell(c, cell) for c, cell in zip(table.columns, row, strict=True))
    return f'<tr class="first">{cells}</tr>' if first else f"<tr>{cells}</tr>"


def _cell(column: Column, cell: Cell) -> str:
    shown = MARKS[cell.rank].format(escape(cell.text))
    if not column.numbers:
        return f"<td>{shown}</td>"
    value = repr(cell.numbers[0]) if cell.numbers else "-Infinity"  # missing: below all
    return f'<td class="number" data-value="{value}">{shown}</td>'
