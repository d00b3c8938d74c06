"""Figure 4: average accuracy after each task, all methods."""

from __future__ import annotations

from pathlib import Path

from evergraph.core.errors import ResultsError
from evergraph.graphs import Graph
from evergraph.reports import Finished
from evergraph.reports.figures.learning_curves import learning_curves
from evergraph.reports.figures.look import looks_of
from evergraph.reports.runs import Group, grouped, names_of
from evergraph.studies.base import DatasetStudy, Options, Sheet, studies
from evergraph.studies.comparison import Table3


@studies.register
class Fig4(DatasetStudy):
    """Learning curves of all methods in class-IL, from the runs of table3."""

    name = "fig4"
    datasets = Table3.datasets
    needs = ("matplotlib",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        """Draw the runs of table3, which are made where they are not there yet."""
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
