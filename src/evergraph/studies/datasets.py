"""Table 1 and the homophily ratios: what the datasets are."""

from __future__ import annotations

from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.graphs import Graph, homophily
from evergraph.streams import GraphStream
from evergraph.studies.base import Options, Sheet, Study, studies, try_load
from evergraph.studies.paper import facts, papers_name

PAPERS = ("corafull", "arxiv", "reddit", "products")


@studies.register
class Table1(Study):
    """Nodes, edges, classes, tasks and homophily of the datasets, beside the paper's."""

    name = "table1"
    datasets = (*PAPERS, "wordnet")

    def run(self, options: Options) -> list[Sheet]:
        """Load what is at hand and count."""
        columns = ("dataset", "nodes", "edges", "classes", "tasks", "homophily", "paper's")
        rows = [_statistics(name) for name in self.asked(options)]
        notes = (
            "Edges as listed by the publisher; homophily with edges both ways. The paper's: nodes, "
            "edges, classes, tasks, homophily.",
            "The paper's 30 tasks of CoraFull are 35 in its own figure: 70 classes, 2 a task.",
        )
        return [Sheet("table1", "Table 1: datasets and tasks", columns, rows, notes)]


@studies.register
class Homophily(Study):
    """The share of edges between nodes of one class, in both readings, beside the paper's."""

    name = "homophily"
    datasets = (*PAPERS, "wordnet")

    def run(self, options: Options) -> list[Sheet]:
        """Load what is at hand and count."""
        columns = ("dataset", "as listed", "both ways", "paper's")
        rows = [_ratios(name) for name in self.asked(options)]
        notes = ("The paper's two figures need the two readings: docs/decisions/0008.",)
        return [Sheet("homophily", "Homophily ratios", columns, rows, notes)]


def _statistics(name: str) -> tuple[str, ...]:
    stem = Path(name).stem
    listed, both = try_load(name, undirected=False), try_load(name)
    if isinstance(listed, str) or isinstance(both, str):
        reason = listed if isinstance(listed, str) else str(both)
        return (stem, f"not at hand: {reason}", "-", "-", "-", "-", _papers(name))
    try:
        tasks = len(GraphStream(both))
    except DataError as error:
        return (stem, f"cannot be cut into tasks: {error}", "-", "-", "-", "-", _papers(name))
    counts = (listed.num_nodes, listed.num_edges, listed.num_classes, tasks)
    return (stem, *(f"{count:,}" for count in counts), f"{homophily(both):.3f}", _papers(name))


def _papers(name: str) -> str:
    known = facts()["datasets"].get(papers_name(name) or "")
    if known is None:
        return "-"
    counts = [f"{known[key]:,}" for key in ("nodes", "edges", "classes", "tasks")]
    return "; ".join([*counts, f"{known['homophily']:.3f}"])


def _ratios(name: str) -> tuple[str, ...]:
    known = facts()["datasets"].get(papers_name(name) or "")
    papers = "-" if known is None else f"{known['homophily']:.3f}"
    graphs = [try_load(name, undirected=undirected) for undirected in (False, True)]
    if not all(isinstance(graph, Graph) for graph in graphs):
        reason = next(graph for graph in graphs if isinstance(graph, str))
        return (Path(name).stem, f"not at hand: {reason}", "-", papers)
    ratios = [f"{homophily(graph):.3f}" for graph in graphs if isinstance(graph, Graph)]
    return (Path(name).stem, *ratios, papers)
