"""Tables independent of a format, their formats, and the ranks within a column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

from evergraph.reports.runs import Entry, Finished, Group

_MARKDOWN_MARKS = {0: "{}", 1: "**{}**", 2: "<u>{}</u>"}
_LATEX_MARKS = {0: "%s", 1: r"\textbf{%s}", 2: r"\underline{%s}"}
ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
MIN_WRAPPED = 18  # characters from which a cell may be wrapped
FIRST_OF_BLOCK = ' class="first"'  # the first row of a block, which has a rule above it
_HTML_MARKS = {0: "{}", 1: "<b>{}</b>", 2: "<u>{}</u>"}


@dataclass(frozen=True)
class TableColumn:
    """A column; ``numbers`` names its cells' numbers in CSV, and is empty for a text column."""

    name: str
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A cell."""

    text: str  # the displayed text
    # Values as in ``result.json``, one for each of ``TableColumn.numbers``; the first is the sort
    # key. Empty if there are none, None for one that was not measured.
    numbers: tuple[float | None, ...] = ()
    rank: int = 0  # 1 if it is the best of its group, 2 if it is the second best, else 0
    largest: bool = False  # whether it sorts above all numbers


@dataclass(frozen=True)
class Table:
    """A table: groups of rows, separated by a rule; ``caption`` is one sentence on them."""

    name: str
    caption: str
    columns: tuple[TableColumn, ...]
    blocks: tuple[tuple[tuple[Cell, ...], ...], ...]

    @property
    def constants(self) -> tuple[int, ...]:
        """The indices of columns with the same text in every row, except the first column."""
        several = len(self.rows) > 1
        constant = []
        for index, column in enumerate(self.columns):
            texts = {row[index].text for row in self.rows}
            if index and len(texts) == 1 and (several or column in NAMED):
                constant.append(index)
        return tuple(constant)

    @property
    def headings(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def texts(self) -> list[list[str]]:
        """The displayed text of all rows."""
        return [[cell.text for cell in row] for row in self.rows]

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """All rows of all blocks."""
        return [row for block in self.blocks for row in block]


NAMED = (TableColumn("method"), TableColumn("dataset"), TableColumn("setting"))


def named(group: Group, entry: Entry) -> tuple[Cell, ...]:
    """Return the cells of a run under ``NAMED``, with its name in the report."""
    return Cell(entry.name), Cell(group.dataset), Cell(group.setting)


def rows_of(
    groups: Sequence[Group], cells: Callable[[Finished], Iterable[Cell]]
) -> tuple[tuple[tuple[Cell, ...], ...], ...]:
    """Return a block per group with a row per run: its names, then its cells."""
    return tuple(
        tuple((*named(group, entry), *cells(entry.run)) for entry in group.entries)
        for group in groups
    )


def numbers(columns: Sequence[str]) -> tuple[TableColumn, ...]:
    """Return columns of one number per cell, with the same name in CSV."""
    return tuple(TableColumn(name, (name,)) for name in columns)


def ranked(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with ranks for the two highest first numbers; a single cell has none.

    Values that are equal in percent with one decimal share a rank.
    """
    values = [round(100 * (cell.numbers[0] or 0.0), 1) for cell in cells]
    best = sorted(set(values), reverse=True)[:2]
    if len(cells) < 2 or len(best) < 2:
        return list(cells)
    ranks = {value: rank for rank, value in enumerate(best, start=1)}
    return [
        replace(cell, rank=ranks.get(value, 0)) for cell, value in zip(cells, values, strict=True)
    ]


def csv_text(table: Table) -> str:
    """Return the table as CSV; a mean and its deviation have separate columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for column in table.columns for name in column.numbers or (column.name,)])
    for row in table.rows:
        values: list[str] = []
        for column, cell in zip(table.columns, row, strict=True):
            numbers = cell.numbers or (None,) * len(column.numbers)
            texts = ["" if number is None else repr(number) for number in numbers]
            values += texts if column.numbers else [cell.text]
        writer.writerow(values)
    return text.getvalue()


def markdown(table: Table) -> str:
    """Return the table as Markdown, followed by its caption."""
    head = [escaped_markdown(column.name) for column in table.columns]
    rules = ["--:" if column.numbers else "---" for column in table.columns]
    rows = [
        [_MARKDOWN_MARKS[cell.rank].format(escaped_markdown(cell.text)) for cell in row]
        for row in table.rows
    ]
    lines = [f"| {' | '.join(row)} |" for row in (head, rules, *rows)]
    return "\n".join([*lines, "", escaped_markdown(table.caption), ""])


def escaped_markdown(text: str) -> str:
    """Return text escaped for Markdown."""
    return re.sub(r"([\\`*|<\[])", r"\\\1", " ".join(text.split()))


def latex(table: Table) -> str:
    r"""Return a table environment; the document needs ``\usepackage{booktabs}``."""
    alignment = "".join("r" if column.numbers else "l" for column in table.columns)

    def line(cells: Iterable[str]) -> str:
        return " & ".join(cells) + r" \\"

    body = "\n\\midrule\n".join(
        "\n".join(line(_LATEX_MARKS[c.rank] % escaped_latex(c.text) for c in row) for row in block)
        for block in table.blocks
    )
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{escaped_latex(table.caption)}}}",
        f"\\label{{tab:{table.name}}}",
        f"\\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        line(escaped_latex(column.name) for column in table.columns),
        r"\midrule",
        body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def escaped_latex(text: str) -> str:
    """Return text escaped for LaTeX."""
    return "".join(ESCAPES.get(character, character) for character in " ".join(text.split()))


def html_table(table: Table) -> str:
    """Return the table in a box that scrolls sideways if it is too wide.

    Columns with the same value in every row are listed once above, to save width.
    """
    name, constants = escape(table.name), table.constants
    varying = [index for index in range(len(table.columns)) if index not in constants]
    shared = []
    for index in constants:
        text = table.rows[0][index].text
        value = "none" if text == "-" else escape(text)
        shared.append(f"{escape(table.columns[index].name)} <b>{value}</b>")
    heads = [_html_heading(table.columns[index]) for index in varying]
    rows = []
    for block in table.blocks:
        for number, row in enumerate(block):
            cells = "".join(_html_cell(table.columns[index], row[index]) for index in varying)
            rows.append(f"<tr{'' if number else FIRST_OF_BLOCK}>{cells}</tr>")
    body = "\n".join(rows)
    return (
        (f'<p class="same">In every row: {" · ".join(shared)}</p>\n' if shared else "")
        + f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {name}">'
        f'<table id="table-{name}" class="sortable">'
        + (f"<caption><span>{escape(table.caption)}</span></caption>\n" if table.caption else "\n")
        + f"<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _html_heading(column: TableColumn) -> str:
    number = ' class="number"' if column.numbers else ""
    return f'<th scope="col"{number}><button type="button">{escape(column.name)}</button></th>'


def _html_cell(column: TableColumn, cell: Cell) -> str:
    shown = _HTML_MARKS[cell.rank].format(escape(cell.text))
    if not column.numbers:
        # Other cells stay on one line: a browser would break class-il after its hyphen.
        wraps = ' class="long"' if len(cell.text) > MIN_WRAPPED and " " in cell.text else ""
        return f"<td{wraps}>{shown}</td>"
    missing = "Infinity" if cell.largest else "-Infinity"  # sorts below all others
    value = repr(cell.numbers[0]) if cell.numbers else missing
    return f'<td class="number" data-value="{value}">{shown}</td>'
