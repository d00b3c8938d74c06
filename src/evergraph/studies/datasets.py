"""Studies without learning: table 1, homophily ratios, and memory of each design (table 4)."""

from __future__ import annotations

from pathlib import Path

import torch

from evergraph.core.errors import DataError
from evergraph.graphs import Graph, homophily, reach_sizes
from evergraph.streams import GraphStream
from evergraph.studies import base
from evergraph.studies.base import DatasetStudy, Options, Sheet, Study, studies

PAPERS = ("corafull", "arxiv", "reddit", "products")
HOPS, HIDDEN, MEMORIES, NEIGHBOURS = 2, 256, 100, 5
# Per class, as the paper's numbers imply (docs/decisions/0014); 100 and 400 elsewhere.
NODES = {"corafull": 100, "arxiv": 400, "reddit": 500, "products": 600}
EMBEDDINGS = {"corafull": 60}
# Feature widths for structures without features.
WIDTHS = {"corafull": 8710, "arxiv": 128, "reddit": 602, "products": 100}


@studies.register
class Table1(Study):
    """Nodes, edges, classes, tasks and homophily of the datasets, beside the paper's."""

    name = "table1"
    datasets = (*PAPERS, "wordnet")

    def run(self, options: Options) -> list[Sheet]:
        columns = ("dataset", "nodes", "edges", "classes", "tasks", "homophily", "paper's")
        rows = []
        for name in self.asked(options):
            listed, both = base.try_load(name, undirected=False), base.try_load(name)
            if isinstance(listed, str) or isinstance(both, str):
                reason = f"not at hand: {listed if isinstance(listed, str) else both}"
                found = [reason, "-", "-", "-", "-"]
            else:
                try:
                    counts = (listed.num_nodes, listed.num_edges, listed.num_classes)
                    every = (*counts, len(GraphStream(both)))
                    found = [*(f"{count:,}" for count in every), f"{homophily(both):.3f}"]
                except DataError as error:
                    found = [f"cannot be cut into tasks: {error}", "-", "-", "-", "-"]
            rows.append((Path(name).stem, *found, _papers(name)))
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
        columns = ("dataset", "as listed", "both ways", "paper's")
        rows = []
        for name in self.asked(options):
            graphs = [base.try_load(name, undirected=undirected) for undirected in (False, True)]
            ratios = [f"{homophily(graph):.3f}" for graph in graphs if isinstance(graph, Graph)]
            if reasons := [graph for graph in graphs if isinstance(graph, str)]:
                ratios = [f"not at hand: {reasons[0]}", "-"]
            rows.append((Path(name).stem, *ratios, _papers(name).split("; ")[-1]))
        notes = ("The paper's two figures need the two readings: docs/decisions/0008.",)
        return [Sheet("homophily", "Homophily ratios", columns, rows, notes)]


def _papers(name: str) -> str:
    known = base.facts()["datasets"].get(base.papers_name(name) or "")
    if known is None:
        return "-"
    counts = [f"{known[key]:,}" for key in ("nodes", "edges", "classes", "tasks")]
    return "; ".join([*counts, f"{known['homophily']:.3f}"])


@studies.register
class Table4(DatasetStudy):
    """Float32 values that each replay design keeps, computed exactly, beside the paper's."""

    name = "table4"
    learns = False
    datasets = ("corafull", "arxiv", "reddit", "products", "wordnet")

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        stem = Path(dataset).stem
        title = f"Table 4, {stem}: millions of float32 values kept after the whole stream"
        papers = base.facts()["memory"].get(base.papers_name(dataset) or "", {})
        rows = []
        for design, method, floats, how in consumption(graph, base.papers_name(dataset)):
            ours, theirs = floats / 1e6, papers.get(method)
            beside = ("-", "-") if theirs is None else (f"{theirs:,}", f"{ours / theirs:.2f}")
            rows.append((design, f"{ours:,.1f}", *beside, how))
        columns = ("design", "ours, M", "paper's, M", "ours / paper's", "counted as")
        notes = (
            "Exact counts: ego-subnetworks within each task, edges both ways, mean over the "
            "training nodes of a class times the nodes it keeps; nothing is built or sampled.",
            "The paper's full subnetworks are near n·d^L, not near any count of the graph, but for "
            "Arxiv, where neither fits: docs/decisions/0014.",
        )
        return [Sheet(f"table4-{stem}", title, columns, rows, notes)]


def consumption(graph: Graph, papers: str | None) -> list[tuple[str, str, float, str]]:
    """Return the float32 values that each design keeps after a graph's whole stream.

    A row each: the design, the method, the number of values, and how they are counted.
    """
    stream = GraphStream(graph)
    width = graph.num_features or WIDTHS.get(papers or "", 1)
    nodes, vectors = NODES.get(papers or "", 100), EMBEDDINGS.get(papers or "", 400)
    stored, whole, few = _stored(stream, nodes)
    embeddings = _stored(stream, vectors)[0]
    classes, tasks = len(stream.classes), len(stream)
    gradients = tasks * (width * HIDDEN + HIDDEN * classes)
    known = base.facts()["datasets"].get(papers or "")
    degree = graph.num_edges / graph.num_nodes
    if known is not None:  # the paper's count of edges, in both directions
        degree = 2 * known["edges"] / known["nodes"]
    return [
        ("full subnetworks", "full-subgraph", whole * width, "ego sizes x features"),
        (
            "full, n·d^L",
            "full-subgraph",
            vectors * classes * degree**HOPS * width,
            f"{vectors} a class x {degree:.1f}^2 x features",
        ),
        ("GEM, a gradient a task", "gem", gradients + stored * width, "parameters x tasks"),
        ("GEM, a gradient a memory", "gem", MEMORIES * gradients, "the paper's count"),
        ("ER-GNN", "er-gnn", stored * width, f"{nodes} nodes a class"),
        ("SSM and SEM", "ssm", few * width, f"{NEIGHBOURS} neighbours a hop, at most"),
        ("PDGNNs-TEM", "tem", embeddings * width, f"{vectors} embeddings a class"),
    ]


def _stored(stream: GraphStream, budget: int) -> tuple[float, float, float]:
    """Return the number of nodes stored: alone, with whole, and with sparsified ego-subnetworks."""
    stored, whole, few = 0.0, 0.0, 0.0
    most = sum(NEIGHBOURS**hop for hop in range(HOPS + 1))
    for index in range(len(stream)):
        task = stream.open(index)
        sizes = reach_sizes(task.graph, task.train, hops=HOPS).double()
        for label in task.train_labels.unique().tolist():
            own = sizes[task.train_labels == label]
            kept = min(budget, len(own))
            stored += kept
            whole += kept * float(own.mean())
            few += kept * float(torch.clamp(own, max=most).mean())
    return stored, whole, few
