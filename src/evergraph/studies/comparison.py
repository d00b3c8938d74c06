"""Tables 3 and 5, here and on the paper's datasets, and the curves of figures 4 and 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from evergraph.core.errors import ResultsError
from evergraph.experiments.bench.benchmark import Row
from evergraph.experiments.config import merged
from evergraph.experiments.presets import presets, published, read_preset
from evergraph.graphs import Graph
from evergraph.reports.figures import accuracy_matrix, learning_curves, looks_of
from evergraph.reports.runs import Finished, Group, grouped, names_of, percent
from evergraph.reports.tables import Cell
from evergraph.studies import base
from evergraph.studies.base import DatasetStudy, Options, Sheet, Study, studies

PAPERS = ("corafull", "arxiv", "reddit", "products")
METHODS = {
    "finetune": "Fine-tune",
    "ewc": "EWC",
    "mas": "MAS",
    "gem": "GEM",
    "twp": "TWP",
    "lwf": "LwF",
    "er-gnn": "ER-GNN",
    "ssm": "SSM",
    "sem": "SEM-curvature",
    "joint": "Joint",
    "joint-pdgnn": "Joint, PDGNN's backbone",
    "tem": "PDGNNs-TEM",
}
UPPER_BOUNDS = ("joint", "joint-pdgnn")
QUICK_EPOCHS, QUICK_TASKS = 2, 6
WITHIN = "within tolerance"
COLUMNS = ("method", "AA", "AF", "AA global", "paper's AA", "difference", WITHIN, "paper's AF")
SHOWN = ("tem", "er-gnn", "lwf", "finetune")
TABLES = ("table3", "table5")
SUMMARY = (
    "table and dataset",
    "methods",
    "within tolerance",
    "outside",
    "failed",
    "not run because",
)


class MethodsTable(DatasetStudy):
    """All methods on some datasets, in one setting."""

    setting: ClassVar[str]
    datasets = ("wordnet", *PAPERS)

    def rows(self, dataset: str, graph: Graph, options: Options) -> list[Row]:
        """Run every method on one dataset."""
        quick: dict[str, Any] = {}
        if options.quick:  # few epochs, and few tasks of more classes
            classes = max(2, -(-graph.num_classes // QUICK_TASKS))
            quick = {"training": {"epochs": QUICK_EPOCHS}, "stream": {"classes_per_task": classes}}
        entries = []
        chosen = options.methods or METHODS
        for label in (label for label in METHODS if label in chosen):
            # The paper's preset, or defaults on other datasets.
            name = label.removesuffix("-pdgnn")
            preset = f"paper/{self.name}/{base.papers_name(dataset)}-{name}"
            values: dict[str, Any] = {"backbone": "pdgnn" if name == "tem" else "gcn"}
            if preset in presets():
                values = read_preset(preset)
            for key in ("dataset", "method", "stream"):
                values.pop(key, None)
            if label.endswith("-pdgnn"):
                values["backbone"] = "pdgnn"
            entries.append({"name": name, "label": label, "run": merged(values, quick)})
        return options.rows(self.name, dataset, entries, settings=[self.setting])

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        stem = Path(dataset).stem
        title = f"Table {self.name[-1]}, {stem}, {self.setting}: average accuracy and forgetting, percent"
        rows = self.rows(dataset, graph, options)
        notes = [
            "Best bold, second underlined, upper bounds aside; tested locally, as the paper does, "
            "but for one column.",
            "The tolerance, in points of AA, is ours: the paper gives neither splits nor seeds.",
            "Baselines run on a normalised GCN: the paper does not say, its sources sum.",
        ]
        if base.papers_name(dataset) is None:
            notes.append(f"The paper has no {stem}: it stands in for its datasets.")
        accuracies = [base.balanced(row.result, "average_accuracy") for row in rows]
        bounds = [index for index, row in enumerate(rows) if row.job.label in UPPER_BOUNDS]
        accuracy_cells = base.marked(accuracies, aside=bounds)
        cells = [
            self._cells(dataset, row, accuracy)
            for row, accuracy in zip(rows, accuracy_cells, strict=True)
        ]
        return [Sheet(f"{self.name}-{stem}", title, COLUMNS, cells, options.differences(*notes))]

    def _cells(self, dataset: str, row: Row, accuracy: Cell) -> tuple[str | Cell, ...]:
        method = METHODS[row.job.label]
        if row.result is None:
            reason = row.failure.error if row.failure is not None else "not finished"
            return (method, f"failed: {reason}", *["-"] * (len(COLUMNS) - 2))
        preset = f"paper/{self.name}/{base.papers_name(dataset)}-{row.job.label}"
        papers = published(preset) if preset in presets() else {}
        ours = 100 * base.balanced(row.result, "average_accuracy")["mean"]
        papers_aa = papers.get("average_accuracy")
        return (
            method,
            accuracy,
            percent(base.balanced(row.result, "average_forgetting")),
            percent(base.balanced(row.result, "average_accuracy", "global")),
            percent(papers_aa, scale=1),
            base.difference(ours, None if papers_aa is None else papers_aa["mean"]),
            base.within(ours, papers),
            percent(papers.get("average_forgetting"), scale=1),
        )


@studies.register
class Table3(MethodsTable):
    """All methods in class-IL, AA and AF beside the paper's."""

    name = "table3"
    setting = "class-il"


@studies.register
class Table5(MethodsTable):
    """All methods in task-IL, AA and AF beside the paper's."""

    name = "table5"
    setting = "task-il"


@studies.register
class Fig4(DatasetStudy):
    """Learning curves of all methods in class-IL, from the runs of table3."""

    name = "fig4"
    datasets = Table3.datasets
    needs = ("matplotlib",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        stem = Path(dataset).stem
        title = f"Figure 4, {stem}: average accuracy after each task, class-IL"
        group = compared(dataset, graph, options)
        picture = learning_curves(group, looks_of(names_of([group])))
        notes = options.differences(
            "Full lines: tested locally, as the paper does; dashed: globally."
        )
        return [Sheet(f"fig4-{stem}", title, notes=notes, picture=picture)]


def compared(dataset: str, graph: Graph, options: Options) -> Group:
    """Return the finished runs of table3 on a dataset."""
    rows = Table3().rows(dataset, graph, options)
    runs = [Finished(row.job.folder, row.result) for row in rows if row.result is not None]
    if not runs:
        reasons = {row.failure.error for row in rows if row.failure is not None}
        raise ResultsError(f"no run of table3 on {dataset} was finished: {'; '.join(reasons)}")
    return grouped(runs, options.out)[0]


@studies.register
class Fig5(DatasetStudy):
    """Accuracy matrices of PDGNNs-TEM, ER-GNN, LwF and Fine-tune, from the runs of table3."""

    name = "fig5"
    datasets = Table3.datasets
    needs = ("matplotlib",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        stem = Path(dataset).stem
        group = compared(dataset, graph, options)
        entries = {entry.name: entry for entry in group.entries}
        return [
            Sheet(
                f"fig5-{stem}-{name}",
                f"Figure 5, {stem}: accuracy matrix of {METHODS[name]}, class-IL",
                notes=options.differences(),
                picture=accuracy_matrix(group, entries[name]),
            )
            for name in SHOWN
            if name in entries
        ]


@studies.register
class Paper(Study):
    """Tables 3 and 5 on the paper's own datasets, ours beside the paper's, with a summary."""

    name = "paper"
    datasets = PAPERS

    def run(self, options: Options) -> list[Sheet]:
        """Make the tables dataset by dataset, the smallest first; the page is written each time."""
        sheets: list[Sheet] = []
        for dataset in self.datasets_of(options):
            for table in options.tables or TABLES:
                sheets += studies.make(table).run(replace(options, datasets=(dataset,)))
                base.write_study(self.name, [*sheets, summary(sheets)], options.out)
        return [*sheets, summary(sheets)]


def summary(sheets: Sequence[Sheet]) -> Sheet:
    """Return the number of methods of each table within the tolerance.

    >>> row = ("PDGNNs-TEM", "53.0", "-14.0", "52.0", "53.2", "-0.2", "yes (5.0)", "-14.7")
    >>> summary([Sheet("table3-arxiv", "", COLUMNS, [row])]).rows
    [('table3-arxiv', '1', '1', '0', '0', '-')]
    """
    rows: list[tuple[str | Cell, ...]] = []
    for sheet in sheets:
        if sheet.columns == base.NOT_RUN:
            rows.append((sheet.name, "0", "0", "0", "0", sheet.rows[0][1]))
            continue
        verdicts = [row[COLUMNS.index(WITHIN)].text for row in sheet.table.rows]
        accuracies = [row[COLUMNS.index("AA")].text for row in sheet.table.rows]
        near = sum(text.startswith("yes") for text in verdicts)
        far = sum(text.startswith("no ") for text in verdicts)
        failed = sum(text.startswith("failed") for text in accuracies)
        rows.append((sheet.name, *map(str, (len(verdicts), near, far, failed)), "-"))
    return Sheet("paper-summary", "Tables 3 and 5: how near ours are to the paper's", SUMMARY, rows)
