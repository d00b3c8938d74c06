"""A graph folder of more than 2^31 entries: what is asked of its last rows is answered right."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evergraph.closed_form.codes import _means
from evergraph.core.errors import DataError
from evergraph.core.resources import Resources
from evergraph.datasets.importing.edge_table import EdgeTable
from evergraph.graphs import (
    Graph,
    Relations,
    covered_nodes,
    estimate_reach_sizes,
    reach,
    reach_sizes,
    smoother,
)
from evergraph.graphs import reachability as search
from evergraph.graphs.disjoint import disjoint_union
from evergraph.graphs.graph_folder import FACTS, GraphFolderWriter, open_graph_folder
from evergraph.graphs.hyperloglog import fill_first, fill_maxima, hashed
from evergraph.graphs.kernels.row_ranges import compiled, unsigned
from evergraph.graphs.kernels.scaled_rows import KERNELS
from evergraph.graphs.reachability import walk_counts
from evergraph.memory.embedding_memory import first_coverers
from evergraph.streams import GraphStream
from evergraph.topology.column_blocks import encode_within
from evergraph.topology.sgc import SGC
from wide_folder import EACH, HEAVY, LIGHT, light_graph, wide_folder

LAST = slice(HEAVY, HEAVY + len(LIGHT))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wide_folder(tmp_path_factory.mktemp("wide") / "graph")


@pytest.fixture
def wide(folder: Path) -> Graph:
    return open_graph_folder(folder)


def test_the_folder_is_one_of_64_bits_and_takes_no_room(wide, folder):
    assert wide.num_edges == 2**31 + 26
    assert (wide.indptr.dtype, wide.indices.dtype) == (torch.int64, torch.int32)
    assert wide.degrees[LIGHT].tolist() == light_graph().degrees[LIGHT].tolist()
    assert wide.neighbours(HEAVY).tolist() == [HEAVY + 1, HEAVY + 11]
    assert 512 * (folder / "indices.npy").stat().st_blocks < 1 << 20


def test_pointers_that_end_before_the_entries_are_refused(folder, tmp_path):
    short = np.load(folder / "indptr.npy").astype(np.int32)  # the last ones are negative
    np.save(tmp_path / "indptr.npy", short)
    (tmp_path / "indices.npy").symlink_to(folder / "indices.npy")
    facts = json.loads((folder / FACTS).read_text())
    facts["arrays"] = {
        name: {"bytes": (tmp_path / f"{name}.npy").stat().st_size} for name in ("indptr", "indices")
    }
    (tmp_path / FACTS).write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"row pointers end at -2,147,483,622, but there are"):
        open_graph_folder(tmp_path)


@pytest.mark.parametrize("kernel", KERNELS[:2])
@pytest.mark.parametrize("self_loops", [False, True])
def test_products_of_the_last_rows(kernel, self_loops, wide):
    light = smoother(light_graph(), kernel=kernel, self_loops=self_loops)
    features, given = light_graph().features, {"kernel": kernel, "self_loops": self_loops}
    expected = light.rows(LAST).product(features)
    rows = smoother(wide, **given).rows(LAST)
    assert rows.product(features).equal(expected)
    assert rows.matrix.crow_indices().dtype == torch.int32  # what is written out is small
    assert replace(rows, mapped=False).product(features).equal(expected)


def alike(one: Graph, other: Graph) -> bool:
    """Whether two graphs have the same nodes and entries, held in 32 bits."""
    arrays = ("indptr", "indices", "features", "labels")
    short = one.indptr.dtype == other.indptr.dtype == torch.int32
    return short and all(getattr(one, name).equal(getattr(other, name)) for name in arrays)


@pytest.mark.parametrize("nodes", [LIGHT, LIGHT[[5, 0, 3, 4]]])
def test_subgraphs(nodes, wide):
    assert alike(wide.subgraph(nodes), light_graph().subgraph(nodes))


@pytest.mark.parametrize("edges", ["within", "all"])
@pytest.mark.parametrize(
    "unlabelled",
    ["leave-out", pytest.param("along", marks=pytest.mark.slow)],  # which reads every entry
)
def test_tasks(edges, unlabelled, wide):
    graphs = (wide, light_graph())
    streams = [GraphStream(graph, edges=edges, unlabelled=unlabelled) for graph in graphs]
    for ours, theirs in zip(*streams, strict=True):
        assert alike(ours.graph, theirs.graph)
        assert ours.train.equal(theirs.train)
    ours, theirs = (stream.exams(1, "global")[0] for stream in streams)
    assert alike(ours.graph, theirs.graph)


REACH: dict[str, Callable[[Graph], Any]] = {
    "sizes": lambda graph: reach_sizes(graph, LIGHT, hops=3).tolist(),
    "who": lambda graph: [found.tolist() for found in reach(graph, LIGHT, hops=2)],
    "walks": lambda graph: walk_counts(graph, LIGHT, hops=3).tolist(),
    "covered": lambda graph: covered_nodes(graph, LIGHT[:2], hops=2).tolist(),
    "first coverers": lambda graph: first_coverers(graph, LIGHT[:2], hops=2).tolist(),
    "one hop": lambda graph: estimate_reach_sizes(graph, LIGHT, hops=1).tolist(),
    "rows": lambda graph: graph.sweep.neighbours(LIGHT).tolist(),
}


@pytest.mark.parametrize("work", REACH)
def test_reach(work, wide):
    assert REACH[work](wide) == REACH[work](light_graph())


def test_a_compiled_search(wide, monkeypatch):
    by_products = REACH["sizes"](light_graph())
    monkeypatch.setattr(search, "SEARCH_PAYS_FROM", 0)
    assert REACH["sizes"](wide) == REACH["sizes"](light_graph()) == by_products


def test_registers_of_the_last_rows(wide):
    column, rank = hashed(wide.num_nodes, 64)
    found = []
    for graph in (wide, light_graph()):
        given = (*map(unsigned, graph.sweep.plain), LIGHT.numpy())
        some, first = torch.zeros(2, len(LIGHT), 64, dtype=torch.uint8)
        compiled(fill_first)(*given, column.numpy(), rank.numpy(), 0, some.numpy(), 0, len(LIGHT))
        every = torch.zeros(graph.num_nodes, 64, dtype=torch.uint8)
        every[LIGHT] = some
        compiled(fill_maxima)(*given, every.numpy(), first.numpy(), 0, len(LIGHT))
        found.append(first)
    assert found[0].equal(found[1])
    assert bool((found[0] > 0).sum(1).gt(4).all())


def test_means_along_relations_behind_two_to_the_31_entries(wide):
    related = Relations(("edge",), wide.indptr, wide.indices, torch.empty(0, dtype=torch.int16))
    starts, ends = wide.indptr[LIGHT], wide.indptr[LIGHT + 1]
    found = _means(related, starts, ends, wide.features)
    # On the ring a node lies between its neighbours: 3, in the middle of 2 and 4, has their mean.
    assert found[3].tolist() == [1.0, 3.0]
    assert found[0].tolist() == [1.0, 6.0]  # of 1 and 11


def many(nodes: int) -> Graph:
    """Return a graph of so many nodes that take no memory."""
    nothing = torch.zeros(1, dtype=torch.int32)
    features = torch.zeros(1, 1).expand(nodes, 1)
    labels = torch.zeros(1, dtype=torch.int64).expand(nodes)
    return Graph(nothing.expand(nodes + 1), nothing[:0], features, labels)


def test_more_nodes_than_31_bits_number_are_refused(tmp_path):
    refused = "has 2,147,483,648 nodes: at most 2,147,483,647 are supported"
    assert many(2**31 - 1).num_nodes == 2**31 - 1
    with pytest.raises(DataError, match=refused):
        many(2**31)
    with pytest.raises(DataError, match=refused):
        disjoint_union([many(2**30), many(2**30)])
    with pytest.raises(DataError, match=refused):
        EdgeTable(tmp_path, nodes=2**31, undirected=True, memory=1 << 20)
    nobody = torch.empty(2, 0, dtype=torch.int64)
    with pytest.raises(DataError, match=refused):
        Relations.of(nobody, nobody[0], ("edge",), nodes=2**31)


@pytest.mark.slow
def test_every_row_of_the_folder_is_read_within_a_limit(wide, folder):
    """A product, embeddings, estimated reach and checksums: a minute of computing."""
    ones = wide.with_features(torch.ones(wide.num_nodes, 1))
    sums = smoother(ones, scheme="none").product(ones.features)
    assert sums.flatten().equal(wide.degrees + 1.0)  # sums of ones, which float32 has all of
    resources = Resources(memory_limit=3 << 30)
    embeddings = encode_within(SGC(hops=1), wide, resources=resources)
    expected = SGC(hops=1).encode(light_graph())
    torch.testing.assert_close(embeddings[LIGHT], expected[LIGHT])  # by another kernel
    sizes = estimate_reach_sizes(wide, LIGHT, hops=2, registers=8)
    assert sizes.equal(estimate_reach_sizes(light_graph(), LIGHT, hops=2, registers=8))
    writer = GraphFolderWriter(folder)
    writer.finish(undirected=True)
    assert open_graph_folder(folder, verify=True).num_edges == HEAVY * EACH + 26
