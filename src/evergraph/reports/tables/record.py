"""A table before it has a format, and the best of a column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

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
