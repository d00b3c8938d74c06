"""Figure 5: accuracy matrices."""

from __future__ import annotations

from pathlib import Path

from evergraph.graphs import Graph
from evergraph.reports.figures.accuracy_matrix import accuracy_matrix
from evergraph.studies.base import DatasetStudy, Options, Sheet, studies
from evergraph.studies.comparison import METHODS, Table3
from evergraph.studies.fig4 import compared

SHOWN = ("tem", "er-gnn", "lwf", "finetune")


@studies.register
class Fig5(DatasetStudy):
    """Accuracy matrices of PDGNNs-TEM, ER-GNN, LwF and Fine-tune, from the runs of table3."""

    name = "fig5"
    datasets = Table3.datasets
    needs = ("matplotlib",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        """Draw the runs of table3, which are made where they are not there yet."""
        stem = Path(dataset).stem
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
