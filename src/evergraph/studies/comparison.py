"""Tables 3 and 5: all methods side by side, in class-IL and in task-IL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from evergraph.experiments.bench.benchmark import Row
from evergraph.experiments.bench.config import BenchConfig
from evergraph.experiments.config import merged
from evergraph.experiments.presets import presets, read_preset
from evergraph.graphs import Graph
from evergraph.reports.tables.record import Cell
from evergraph.studies.base import DatasetStudy, Options, Sheet, studies
from evergraph.studies.cells import balanced, difference, marked, spread, within
from evergraph.studies.paper import papers_cell, papers_name

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


class Comparison(DatasetStudy):
    """All methods on some datasets, in one setting."""

    setting: ClassVar[str]
    datasets = ("wordnet", *PAPERS)

    def rows(self, dataset: str, graph: Graph, options: Options) -> list[Row]:
        """Run every method on one dataset."""
        quick = quick_values(graph) if options.quick else {}
        labels = [label for label in METHODS if label in (options.methods or METHODS)]
        entries = [_entry(self.name, dataset, label, quick) for label in labels]
        bench = BenchConfig.of(
            {
                "datasets": [dataset],
                "settings": [self.setting],
                "seeds": options.repeats(),
                "methods": entries,
            }
        )
        return options.bench(bench, options.out / self.name / Path(dataset).stem)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        """Run every method on one dataset, and set ours beside the paper's."""
        stem = Path(dataset).stem
        title = f"{self.title}, {stem}, {self.setting}: average accuracy and forgetting, percent"
        rows = self.rows(dataset, graph, options)
        return [Sheet(
            f"{self.name}-{stem}", title, COLUMNS, _lines(self.name, dataset, rows),
            options.differences(*_notes(dataset)),
        )]  # fmt: skip

    @property
    def title(self) -> str:
        """The paper's name of it."""
        return f"Table {self.name.removeprefix('table')}"


@studies.register
class Table3(Comparison):
    """All methods in class-IL, AA and AF beside the paper's."""

    name = "table3"
    setting = "class-il"


@studies.register
class Table5(Comparison):
    """All methods in task-IL, AA and AF beside the paper's."""

    name = "table5"
    setting = "task-il"


def quick_values(graph: Graph) -> dict[str, Any]:
    """Return what a quick run changes: few epochs, and few tasks of more classes."""
    classes = max(2, -(-graph.num_classes // QUICK_TASKS))
    return {"training": {"epochs": QUICK_EPOCHS}, "stream": {"classes_per_task": classes}}


def _entry(table: str, dataset: str, label: str, quick: dict[str, Any]) -> dict[str, Any]:
    """Return one method as the paper's preset has it; ours where the dataset is not the paper's."""
    name = label.removesuffix("-pdgnn")
    preset = f"paper/{table}/{papers_name(dataset)}-{name}"
    values: dict[str, Any] = {"backbone": "pdgnn" if name == "tem" else "gcn"}
    if preset in presets():
        values = read_preset(preset)
    for key in ("dataset", "method", "stream"):
        values.pop(key, None)
    if label.endswith("-pdgnn"):
        values["backbone"] = "pdgnn"
    return {"name": name, "label": label, "run": merged(values, quick)}


def _lines(table: str, dataset: str, rows: list[Row]) -> list[tuple[str | Cell, ...]]:
    accuracies = [balanced(row.result, "average_accuracy") for row in rows]
    ranked = [
        None if value is None or row.job.label in UPPER_BOUNDS else value["mean"]
        for row, value in zip(rows, accuracies, strict=True)
    ]
    cells = marked([spread(value, scale=100) for value in accuracies], ranked)
    return [_line(table, dataset, row, cell) for row, cell in zip(rows, cells, strict=True)]


def _line(table: str, dataset: str, row: Row, cell: Cell) -> tuple[str | Cell, ...]:
    method = METHODS[row.job.label]
    if row.result is None:
        reason = row.failure.error if row.failure is not None else "not finished"
        return (method, f"failed: {reason}", *["-"] * (len(COLUMNS) - 2))
    papers = papers_cell(table, dataset, row.job.label)
    ours = 100 * balanced(row.result, "average_accuracy")["mean"]
    theirs = papers.get("average_accuracy")
    return (
        method,
        cell,
        spread(balanced(row.result, "average_forgetting"), scale=100),
        spread(balanced(row.result, "average_accuracy", "global"), scale=100),
        spread(theirs),
        difference(ours, None if theirs is None else theirs["mean"]),
        within(ours, papers),
        spread(papers.get("average_forgetting")),
    )


def _notes(dataset: str) -> tuple[str, ...]:
    notes = [
        "Best bold, second underlined, upper bounds aside; tested locally, as the paper does, but "
        "for one column.",
        "The tolerance, in points of AA, is that of the preset: the paper gives neither splits nor "
        "seeds.",
        "Baselines run on a normalised GCN: the paper does not say, its sources sum.",
    ]
    if papers_name(dataset) is None:
        notes.append(f"The paper has no {Path(dataset).stem}: it stands in for its datasets.")
    return tuple(notes)
