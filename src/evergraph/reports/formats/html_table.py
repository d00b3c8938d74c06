"""A table as HTML that report.js can sort."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from evergraph.reports.tables.record import Cell, Column, Table

LONG = 18  # letters, beyond which a cell may take several lines
MARKS = {0: "{}", 1: "<b>{}</b>", 2: "<u>{}</u>"}


def html_table(table: Table) -> str:
    """Return the table in a box of its own, which scrolls sideways where it is too wide.

    What is the same in every row is said once, above: narrow windows have room for what differs.
    """
    places = [place for place in range(len(table.columns)) if place not in table.constants]
    head = "".join(_heading(table.columns[place]) for place in places)
    rows = "\n".join(
        _row([(table.columns[place], row[place]) for place in places], first=number == 0)
        for block in table.blocks
        for number, row in enumerate(block)
    )
    return (
        f"{_in_all_rows(table)}"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {escape(table.name)}">'
        f'<table id="table-{escape(table.name)}" class="sortable">'
        f"<caption><span>{escape(table.caption)}</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _heading(column: Column) -> str:
    kind = ' class="number"' if column.numbers else ""
    return f'<th scope="col"{kind}><button type="button">{escape(column.name)}</button></th>'


def _in_all_rows(table: Table) -> str:
    """Return what every row says, as a line of its own."""
    if not table.constants:
        return ""
    said = [(table.columns[place].name, table.rows[0][place].text) for place in table.constants]
    items = " · ".join(
        f"{escape(name)} <b>{'none' if text == '-' else escape(text)}</b>" for name, text in said
    )
    return f'<p class="same">In every row: {items}</p>\n'


def _row(cells: Sequence[tuple[Column, Cell]], *, first: bool) -> str:
    text = "".join(_cell(column, cell) for column, cell in cells)
    return f'<tr class="first">{text}</tr>' if first else f"<tr>{text}</tr>"


def _cell(column: Column, cell: Cell) -> str:
    shown = MARKS[cell.rank].format(escape(cell.text))
    if not column.numbers:
        # Others keep to one line: a browser would break class-il after its hyphen.
        wraps = ' class="long"' if len(cell.text) > LONG and " " in cell.text else ""
        return f"<td{wraps}>{shown}</td>"
    missing = "Infinity" if cell.most else "-Infinity"  # below all, if it is not above all
    value = repr(cell.numbers[0]) if cell.numbers else missing
    return f'<td class="number" data-value="{value}">{shown}</td>'
