"""Figure 4: average accuracy after each task, all methods."""

from __future__ import annotations

from pathlib import Path

from evergraph.graphs import Graph
from evergraph.reports import Finished
from evergraph.reports.figures.learning_curves import learning_curves
from evergraph.reports.figures.look import looks_of
from evergraph.reports.groups import Group, grouped, names_of
from evergraph.studies.base import Options, Sheet, Study, studies, try_load
from evergraph.studies.comparison import Table3


@studies.register
class Fig4(Study):
    """Learning curves of all methods in class-IL, from the runs of table3."""

    name = "fig4"
    datasets = Table3.datasets

    def run(self, options: Options) -> list[Sheet]:
        """Draw the runs of table3, which are made where they are not there yet."""
        return [self._sheet(dataset, options) for dataset in self.asked(options)]

    def _sheet(self, dataset: str, options: Options) -> Sheet:
        stem = Path(dataset).stem
        title = f"Figure 4, {stem}: average accuracy after each task, class-IL"
        graph = try_load(dataset)
        if isinstance(graph, str):
            return Sheet(f"fig4-{stem}", title, ("dataset", "not run"), [(stem, graph)])
        group = compared(dataset, graph, options)
        picture = learning_curves(group, looks_of(names_of([group])))
        notes = options.differences(
            "Full lines: tested locally, as the paper does; dashed: globally."
        )
        return Sheet(f"fig4-{stem}", title, notes=notes, picture=picture)


def compared(dataset: str, graph: Graph, options: Options) -> Group:
    """Return the finished runs of table3 on a dataset."""
    rows = Table3().rows(dataset, graph, options)
    runs = [Finished(row.job.folder, row.result) for row in rows if row.result is not None]
    return grouped(runs, options.out)[0]
