"""A table as CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from html import escape

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


_MARKDOWN_MARKS = {0: "{}", 1: "**{}**", 2: "<u>{}</u>"}


def markdown(table: Table) -> str:
    """Return the table as Markdown, its caption below."""
    head = [escaped_markdown(column.name) for column in table.columns]
    rules = ["--:" if column.numbers else "---" for column in table.columns]
    rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    lines = [f"| {' | '.join(row)} |" for row in (head, rules, *rows)]
    return "\n".join([*lines, "", escaped_markdown(table.caption), ""])


def _markdown_cell(cell: Cell) -> str:
    return _MARKDOWN_MARKS[cell.rank].format(escaped_markdown(cell.text))


def escaped_markdown(text: str) -> str:
    r"""Return text that Markdown shows as it is.

    >>> print(escaped_markdown("a|b <c> *d*"))
    a\|b \<c> \*d\*
    """
    return re.sub(r"([\\`*|<\[])", r"\\\1", " ".join(text.split()))


_LATEX_MARKS = {0: "%s", 1: r"\textbf{%s}", 2: r"\underline{%s}"}
ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


def latex(table: Table) -> str:
    r"""Return a table environment; the document needs ``\usepackage{booktabs}``."""
    alignment = "".join("r" if column.numbers else "l" for column in table.columns)
    blocks = [
        [_latex_line([_latex_cell(cell) for cell in row]) for row in block]
        for block in table.blocks
    ]
    body = "\n\\midrule\n".join("\n".join(block) for block in blocks)
    lines = [
        r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering",
        f"\\caption{{{escaped_latex(table.caption)}}}", f"\\label{{tab:{table.name}}}",
        f"\\begin{{tabular}}{{{alignment}}}", r"\toprule",
        _latex_line([escaped_latex(column.name) for column in table.columns]), r"\midrule",
        body, r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    return _LATEX_MARKS[cell.rank] % escaped_latex(cell.text)


def escaped_latex(text: str) -> str:
    r"""Return text that LaTeX sets as it is.

    >>> print(escaped_latex("a_b & 5 % ± {x}"))
    a\_b \& 5 \% $\pm$ \{x\}
    """
    return "".join(ESCAPES.get(sign, sign) for sign in " ".join(text.split()))


LONG = 18  # letters, beyond which a cell may take several lines
_HTML_MARKS = {0: "{}", 1: "<b>{}</b>", 2: "<u>{}</u>"}


def html_table(table: Table) -> str:
    """Return the table in a box of its own, which scrolls sideways where it is too wide.

    What is the same in every row is said once, above: narrow windows have room for what differs.
    """
    places = [place for place in range(len(table.columns)) if place not in table.constants]
    head = "".join(_heading(table.columns[place]) for place in places)
    rows = "\n".join(
        _html_row([(table.columns[place], row[place]) for place in places], first=number == 0)
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


def _html_row(cells: Sequence[tuple[Column, Cell]], *, first: bool) -> str:
    text = "".join(_html_cell(column, cell) for column, cell in cells)
    return f'<tr class="first">{text}</tr>' if first else f"<tr>{text}</tr>"


def _html_cell(column: Column, cell: Cell) -> str:
    shown = _HTML_MARKS[cell.rank].format(escape(cell.text))
    if not column.numbers:
        # Others keep to one line: a browser would break class-il after its hyphen.
        wraps = ' class="long"' if len(cell.text) > LONG and " " in cell.text else ""
        return f"<td{wraps}>{shown}</td>"
    missing = "Infinity" if cell.most else "-Infinity"  # below all, if it is not above all
    value = repr(cell.numbers[0]) if cell.numbers else missing
    return f'<td class="number" data-value="{value}">{shown}</td>'
