"""Everything registered gives the same bits whether row pointers are of 32 bits or of 64.

Small graphs are forced to have long pointers by saying that 31 bits count to three. What is
registered later is tested as well.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evergraph.closed_form import ViewFeatures
from evergraph.closed_form.codes import RelationCodes, RelationHops
from evergraph.cluster.ray_engine import pack, unpack
from evergraph.core.seeding import seeded
from evergraph.graphs import (
    Graph,
    NodeTypes,
    Relations,
    covered_nodes,
    csr,
    forman_curvature,
    homophily,
    normalised,
    reach,
    smoother,
)
from evergraph.graphs import reachability as search
from evergraph.graphs.disjoint import disjoint_union
from evergraph.graphs.graph_folder import GraphFolderWriter, open_graph_folder
from evergraph.graphs.hyperloglog import estimate_reach_sizes
from evergraph.graphs.kernels import scaled_rows
from evergraph.graphs.operator import SparseOperator
from evergraph.graphs.reachability import reach_sizes
from evergraph.memory import Candidates, samplers
from evergraph.memory.embedding_memory import first_coverers
from evergraph.memory.subgraph_memory import ego_networks
from evergraph.methods import methods
from evergraph.nn import RandomFeatures, Tuned, backbones
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.streams import GraphStream
from evergraph.topology import topologies
from evergraph.training import Trainer

NODES = 48
SMALL: dict[str, Callable[[], Any]] = {
    "analytic": partial(RandomFeatures, width=32),
    "auto": partial(ViewFeatures, width=32),
    "joint": partial(Tuned, hidden=16),
}
Work = Callable[[Graph], Any]


def drawn(kind: str = "plain") -> Graph:
    """Return a graph of six classes: plain, directed, weighted, sparse or related."""
    draw = torch.Generator().manual_seed(3)
    edges = torch.randint(NODES, (2, 150), generator=draw)
    features = torch.randn(NODES, 12, generator=draw)
    if kind == "sparse":
        features = torch.eye(NODES).repeat(1, 3).to_sparse_csr()
    graph = Graph.from_edges(
        edges,
        features=features,
        labels=torch.arange(NODES) % 6,
        undirected=kind != "directed",
        weights=torch.rand(150, generator=draw) + 0.1 if kind == "weighted" else None,
        time=torch.arange(NODES),
    )
    if kind != "related":
        return graph
    kinds = torch.randint(3, (150,), generator=draw)
    weights = torch.rand(150, generator=draw) + 0.1
    related = Relations.of(edges, kinds, ("a", "b", "c"), nodes=NODES, weights=weights)
    types = NodeTypes(("x", "y"), (torch.arange(NODES) % 2).short())
    return graph.with_relations(related).with_types(types)


def same(one: Any, other: Any) -> bool:
    """Whether two results are the same to the last bit, the type of row pointers aside."""
    if isinstance(one, Tensor) and one.layout == torch.sparse_csr:
        return same(_parts(one), _parts(other))
    if isinstance(one, Tensor):
        whole = not (one.is_floating_point() or one.is_complex())
        return one.long().equal(other.long()) if whole else one.equal(other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if is_dataclass(one):
        names = [field.name for field in fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


def _parts(matrix: Tensor) -> list[Tensor]:
    return [matrix.crow_indices(), matrix.col_indices(), matrix.values()]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what does some work on a graph of either kind and compares."""

    def compare(work: Work, kind: str = "plain") -> None:
        graph = drawn(kind)
        expected = work(graph)
        monkeypatch.setattr(csr, "MOST_INT32", 3)
        long = drawn(kind)
        assert (graph.indptr.dtype, long.indptr.dtype) == (torch.int32, torch.int64)
        assert same(work(long), expected)

    return compare


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "plain") for name in topologies.names()),
        *(("sgc", kind) for kind in ("directed", "weighted", "sparse")),
    ],
)
def test_topologies(name, kind, check):
    check(topologies.make(name).encode, kind)


@pytest.mark.parametrize(
    ("kernel", "kind", "self_loops"),
    [
        ("torch", "plain", True),
        ("torch", "directed", False),
        ("torch", "weighted", True),
        ("torch", "sparse", False),
        ("numba", "plain", True),
        ("numba", "directed", False),
        # compiling the kernel once more takes ten seconds
        pytest.param("numba", "weighted", True, marks=pytest.mark.slow),
    ],
)
def test_products(kernel, kind, self_loops, check):
    pytest.importorskip(kernel)
    check(partial(products, kernel, self_loops), kind)


def products(kernel: Any, self_loops: bool, graph: Graph) -> list[Tensor]:
    """Return products of all rows, of all in ranges and of some, and the matrix itself."""
    features = torch.randn(NODES, 7, generator=torch.Generator().manual_seed(1))
    whole = smoother(graph, kernel=kernel, self_loops=self_loops)
    mapped = replace(whole, mapped=True)
    rows = whole.rows(slice(9, 30)).product(features)
    return [whole.product(features), mapped.product(features), rows, whole.matrix]


REACH: dict[str, Work] = {
    "sizes": lambda graph: reach_sizes(graph, torch.arange(NODES), hops=3, method="exact"),
    "estimated": lambda graph: estimate_reach_sizes(graph, torch.arange(NODES), hops=3),
    "who": lambda graph: reach(graph, torch.tensor([7, 3]), hops=2),
    "covered": lambda graph: covered_nodes(graph, torch.tensor([7, 3]), hops=2),
    "first coverers": lambda graph: first_coverers(graph, torch.tensor([7, 3]), hops=2),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("work", REACH)
def test_reach(work, compiled, check, monkeypatch):
    if compiled:
        monkeypatch.setattr(scaled_rows, "NUMBA_PAYS_FROM", 0)
        monkeypatch.setattr(search, "SEARCH_PAYS_FROM", 0)
    check(REACH[work], "directed")


@pytest.mark.parametrize(
    ("by", "edges", "kind"),
    [
        ("class", "within", "plain"),
        ("time", "all", "directed"),
        ("class", "all", "weighted"),
        ("time", "within", "sparse"),
        ("class", "all", "related"),
    ],
)
def test_streams(by, edges, kind, check):
    def work(graph):
        stream = GraphStream(graph, by=by, tasks=3 if by == "time" else None, edges=edges)
        graphs = [task.graph for task in stream] + [stream.open(1, cumulative=True).graph]
        return graphs + [exam.graph for exam in stream.exams(1, "global")]

    check(work, kind)


def transposed(graph: Graph) -> list[Tensor]:
    """Return the gradient that flows through the adjacency, and its transpose."""
    operator = SparseOperator.of(normalised(graph))
    given = torch.ones(NODES, 2, requires_grad=True)
    (operator @ given).square().sum().backward()
    return [given.grad, operator.transposed, operator.order, operator.back]


def grown(graph: Graph) -> Graph:
    growing = GrowingGraph(num_features=12)
    growing.add(torch.zeros(NODES, 12), torch.stack([graph.indices.long(), graph.edge_rows()]))
    return growing.induced(torch.arange(5, 30))


WORK: dict[str, Work] = {
    "subgraph": lambda graph: graph.subgraph(torch.tensor([9, 0, 21, 5])),
    "kept entries": lambda graph: graph.subgraph(
        torch.arange(20), keep=torch.arange(graph.num_edges) % 2 == 0
    ),
    "union": lambda graph: disjoint_union([graph, graph.subgraph(torch.arange(9))]),
    "undirected": lambda graph: replace(graph, undirected=False).to_undirected(),
    "data": lambda graph: Graph.from_data(graph.to_data(), undirected=graph.undirected),
    "hetero": lambda graph: Graph.from_data(graph.to_hetero(), undirected=True).indices,
    "directions": lambda graph: replace(graph, undirected=False).with_directions().relations,
    "homophily": homophily,
    "curvature": forman_curvature,
    "ego networks": lambda graph: ego_networks(
        graph, torch.tensor([3, 8]), hops=2, neighbours=2, rank=lambda entries: entries.double()
    ),
    "transpose": transposed,
    "growing": grown,
    "parcel": lambda graph: unpack(pack(graph)),
}


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        *((work, "plain") for work in WORK),
        *(
            (work, kind)
            for work in ("subgraph", "union", "data")
            for kind in ("weighted", "sparse")
        ),
    ],
)
def test_work_on_a_graph(work, kind, check):
    check(WORK[work], kind)


@pytest.mark.parametrize("encoder", [RelationHops(width=16), RelationCodes(width=16)])
def test_topologies_of_relations(encoder, check):
    check(encoder.encode, "related")


@pytest.mark.parametrize("name", samplers.names())
def test_samplers(name, check):
    nodes = torch.arange(0, NODES, 2)

    def work(graph):
        embeddings = torch.randn(len(nodes), 4, generator=torch.Generator().manual_seed(2))
        given = Candidates(graph, nodes, graph.labels[nodes], embeddings, hops=2)
        draw = torch.Generator().manual_seed(0)
        return samplers.make(name).select(given, {0: 3, 2: 2, 4: 4}, generator=draw)

    check(work)


def test_folders(check, tmp_path):
    def work(graph):
        writer = GraphFolderWriter(tmp_path / str(graph.indptr.dtype))
        for name in ("indptr", "indices", "features", "labels", "time"):
            array = getattr(graph, name)
            writer.create(name, tuple(array.shape), array.dtype).copy_(array)
        writer.finish(undirected=graph.undirected)
        found = open_graph_folder(writer.folder, verify=True)
        assert found.indptr.dtype == graph.indptr.dtype
        return replace(found.in_memory(), folder=None)

    check(work)


@pytest.mark.parametrize("name", methods.names())
def test_methods(name, check):
    def work(graph):
        stream = GraphStream(graph, classes_per_task=3)
        made = SMALL.get(name, partial(backbones.make, methods.resolve(name).default_backbone))
        draw = seeded(0, "learner")
        trainer = Trainer(epochs=1)
        learner = methods.make(name, trainer=trainer, generator=draw, backbone=made())
        for index in range(len(stream)):
            learner.fit_task(stream.open(index, cumulative=learner.cumulative))
        exam = stream.exams(1, "global")[0]
        with torch.no_grad():
            return learner.logits(exam.graph, exam.nodes)

    check(work)
