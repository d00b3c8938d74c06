"""Figure 5: accuracy matrices."""

from __future__ import annotations

from pathlib import Path

from evergraph.reports.figures.accuracy_matrix import accuracy_matrix
from evergraph.studies.base import Options, Sheet, Study, studies, try_load
from evergraph.studies.comparison import METHODS, Table3
from evergraph.studies.fig4 import compared

SHOWN = ("tem", "er-gnn", "lwf", "finetune")


@studies.register
class Fig5(Study):
    """Accuracy matrices of PDGNNs-TEM, ER-GNN, LwF and Fine-tune, from the runs of table3."""

    name = "fig5"
    datasets = Table3.datasets

    def run(self, options: Options) -> list[Sheet]:
        """Draw the runs of table3, which are made where they are not there yet."""
        return [
            sheet for dataset in self.asked(options) for sheet in self._sheets(dataset, options)
        ]

    def _sheets(self, dataset: str, options: Options) -> list[Sheet]:
        stem = Path(dataset).stem
        graph = try_load(dataset)
        if isinstance(graph, str):
            title = f"Figure 5, {stem}"
            return [Sheet(f"fig5-{stem}", title, ("dataset", "not run"), [(stem, graph)])]
        group = compared(dataset, graph, options)
        return [
            Sheet(
                f"fig5-{stem}-{entry.name}",
                f"Figure 5, {stem}: accuracy matrix of {METHODS[entry.name]}, class-IL",
                notes=options.differences(),
                picture=accuracy_matrix(group, entry),
            )
            for shown in SHOWN
            for entry in group.entries
            if entry.name == shown
        ]
