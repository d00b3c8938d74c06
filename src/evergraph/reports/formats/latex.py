"""A table as LaTeX, ruled by booktabs."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.tables.record import Cell, Table

MARKS = {0: "%s", 1: r"\textbf{%s}", 2: r"\underline{%s}"}
ESCAPES = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


def latex(table: Table) -> str:
    r"""Return a table environment; the document needs ``\usepackage{booktabs}``."""
    alignment = "".join("r" if column.numbers else "l" for column in table.columns)
    blocks = [[_line([_cell(cell) for cell in row]) for row in block] for block in table.blocks]
    body = "\n\\midrule\n".join("\n".join(block) for block in blocks)
    lines = [
        r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering",
        f"\\caption{{{escaped(table.caption)}}}", f"\\label{{tab:{table.name}}}",
        f"\\begin{{tabular}}{{{alignment}}}", r"\toprule",
        _line([escaped(column.name) for column in table.columns]), r"\midrule",
        body, r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: Cell) -> str:
    return MARKS[cell.rank] % escaped(cell.text)


def escaped(text: str) -> str:
    r"""Return text that LaTeX sets as it is.

    >>> print(escaped("a_b & 5 % ± {x}"))
    a\_b \& 5 \% $\pm$ \{x\}
    """
    return "".join(ESCAPES.get(sign, sign) for sign in " ".join(text.split()))
