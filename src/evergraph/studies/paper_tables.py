"""Tables 3 and 5 on the paper's own four datasets, and how near ours are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evergraph.reports.tables.record import Cell
from evergraph.studies.base import NOT_RUN, Options, Sheet, Study, studies
from evergraph.studies.comparison import COLUMNS, PAPERS, WITHIN
from evergraph.studies.results import keep

TABLES = ("table3", "table5")
SUMMARY = (
    "table and dataset",
    "methods",
    "within tolerance",
    "outside",
    "failed",
    "not run because",
)


@studies.register
class Paper(Study):
    """Tables 3 and 5 on the paper's own datasets, ours beside the paper's, with a summary."""

    name = "paper"
    datasets = PAPERS

    def run(self, options: Options) -> list[Sheet]:
        """Make the tables dataset by dataset, the smallest first; the page is kept after each."""
        made: list[Sheet] = []
        for dataset in self.asked(options):
            for table in options.tables or TABLES:
                made += studies.make(table).run(replace(options, datasets=(dataset,)))
                keep(self.name, [*made, summary(made)], options.out)
        return [*made, summary(made)]


def summary(sheets: Sequence[Sheet]) -> Sheet:
    """Return how many methods of each table came within the tolerance.

    >>> row = ("PDGNNs-TEM", "53.0", "-14.0", "52.0", "53.2", "-0.2", "yes (5.0)", "-14.7")
    >>> summary([Sheet("table3-arxiv", "", COLUMNS, [row])]).rows
    [('table3-arxiv', '1', '1', '0', '0', '-')]
    """
    rows = [_counts(sheet) for sheet in sheets]
    return Sheet("paper-summary", "Tables 3 and 5: how near ours are to the paper's", SUMMARY, rows)


def _counts(sheet: Sheet) -> tuple[str | Cell, ...]:
    if sheet.columns == NOT_RUN:
        return (sheet.name, "0", "0", "0", "0", sheet.rows[0][1])
    verdicts = [row[COLUMNS.index(WITHIN)] for row in sheet.table.rows]
    accuracies = [row[COLUMNS.index("AA")].text for row in sheet.table.rows]
    counts = (
        len(verdicts),
        sum(cell.text.startswith("yes") for cell in verdicts),
        sum(cell.text.startswith("no ") for cell in verdicts),
        sum(text.startswith("failed") for text in accuracies),
    )
    return (sheet.name, *map(str, counts), "-")
