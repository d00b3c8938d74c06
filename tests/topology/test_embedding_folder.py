"""Embeddings in a folder are those of the graph, to the last bit, whatever interrupts them."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import open_graph_folder
from evergraph.topology import TopologyEncoder, topologies
from evergraph.topology.column_blocks import encode_within
from evergraph.topology.embedding_folder import embed
from graphs_to_draw import graph_of, path_pairs, random_graph
from several import Several

HOPS = ("sgc", "s2gc", "appnp", "ppr", "mixhop", "identity")
MANY = Resources(memory_limit=10**12)  # the same however busy the machine is


THREE = Resources(memory_limit=10**12, engine=Several())


def drawn(seed: int, nodes: int, edges: int, *, undirected: bool, weighted: bool) -> Graph:
    draw = torch.Generator().manual_seed(seed)
    apart = nodes // 4  # nodes without any edge
    return Graph.from_edges(
        torch.randint(max(nodes - apart, 1), (2, edges), generator=draw),
        features=torch.randn(nodes, 5, generator=draw),
        labels=torch.randint(-1, 3, (nodes,), generator=draw),
        undirected=undirected,
        weights=torch.rand(edges, generator=draw) + 0.1 if weighted else None,
    )


def embedded(source: Graph, topology: TopologyEncoder, **options: Any) -> Graph:
    with tempfile.TemporaryDirectory() as place:
        embed(source, Path(place, "out"), topology=topology, **options)
        return open_graph_folder(Path(place, "out"), verify=True).in_memory()


def test_a_hop_on_a_path_by_hand():
    # 0 - 1 - 2 - 3 with features 0 .. 3: degrees with self-loops are 2, 3, 3, 2.
    path = graph_of(path_pairs(4), 4, labels=[0, -1, 1, -1])
    six = 6**0.5
    expected = torch.tensor(
        [[1 / six], [1 / 3 + 2 / 3], [1 / 3 + 2 / 3 + 3 / six], [2 / six + 1.5]]
    )
    found = embedded(path, topologies.make("sgc", hops=1))
    torch.testing.assert_close(found.features, expected)
    assert torch.equal(found.indices, path.indices)
    labelled = embedded(path, topologies.make("sgc", hops=1), nodes="labelled")
    torch.testing.assert_close(labelled.features, expected[[0, 2]])
    assert labelled.labels.tolist() == [0, 1]
    assert labelled.num_edges == 0


graphs = st.builds(
    drawn,
    st.integers(0, 2**31),
    st.integers(1, 20),
    st.integers(0, 40),
    undirected=st.booleans(),
    weighted=st.booleans(),
)
half = st.builds(
    topologies.make,
    st.sampled_from(["sgc", "s2gc", "appnp", "ppr", "mixhop"]),
    dtype=st.sampled_from(["float16", "bfloat16"]),
)
encoders = half | st.builds(topologies.make, st.sampled_from(HOPS), self_loops=st.booleans())


@given(graphs, encoders, st.sampled_from(["all", "labelled"]))
def test_folders_hold_the_same_bits(graph, topology, nodes):
    expected = encode_within(topology, graph, resources=MANY)
    found = embedded(graph, topology, nodes=nodes, resources=THREE)
    known = graph.labels >= 0 if nodes == "labelled" else torch.ones(graph.num_nodes).bool()
    assert torch.equal(found.features, expected[known])
    assert torch.equal(found.labels, graph.labels[known])
    if nodes == "all":
        for name in ("indptr", "indices", "weights"):
            ours, theirs = getattr(found, name), getattr(graph, name)
            assert (ours is None and theirs is None) or torch.equal(ours, theirs), name
        assert found.undirected == graph.undirected
    else:
        assert found.num_edges == 0


def test_columns_go_in_blocks_and_are_counted():
    graph, told = random_graph(3, dims=5), []
    embedded(graph, topologies.make("sgc"), resources=THREE, on_progress=lambda *s: told.append(s))
    assert told == [("embed", n, 5) for n in (0, 1, 3, 5)] + [("checksum", 0, 1)]


def test_columns_that_mix_are_refused():
    for name in ("reservoir",):
        with pytest.raises(ConfigurationError, match=f"columns do not mix.*{name}"):
            embedded(random_graph(1), topologies.make(name))


class StoppedError(Exception):
    """Somebody pulled the plug."""


class StopsAfter(Several):
    """Does so many pieces of work, and no more."""

    def __init__(self, left: int) -> None:
        self.left, self.done = left, 0

    def map(self, work: Any, items: Any, **given: Any) -> Any:
        for found in super().map(work, items, **given):
            if self.done == self.left:
                raise StoppedError
            self.done += 1
            yield found


def test_what_was_stopped_goes_on(tmp_path):
    graph, topology = random_graph(3, dims=5), topologies.make("s2gc")
    out = tmp_path / "out"
    with pytest.raises(StoppedError):  # three blocks: after the second
        embed(graph, out, topology=topology, resources=Resources(engine=StopsAfter(2)))
    with pytest.raises(DataError, match="holds no finished graph"):
        open_graph_folder(out)
    assert json.loads((out / "embedding.json").read_text())["columns"] == 3
    engine = StopsAfter(99)
    assert embed(graph, out, topology=topology, resources=Resources(engine=engine))
    assert engine.done == 2  # the two columns that were left, each for a worker
    found = open_graph_folder(out)
    assert torch.equal(found.features, encode_within(topology, graph, resources=MANY))
    assert not (out / "embedding.json").exists()
    assert not embed(graph, out, topology=topology, resources=Resources(engine=engine))
    with pytest.raises(DataError, match="holds another graph: choose another folder"):
        embed(graph, out, topology=topologies.make("sgc"))


def test_a_folder_that_lost_its_files_begins_again(tmp_path):
    graph, topology, out = random_graph(3), topologies.make("sgc"), tmp_path / "out"
    with pytest.raises(StoppedError):
        embed(graph, out, topology=topology, resources=Resources(engine=StopsAfter(1)))
    (out / "features.npy").unlink()
    embed(graph, out, topology=topology)
    expected = encode_within(topology, graph, resources=MANY)
    assert torch.equal(open_graph_folder(out).features, expected)


def test_what_is_no_graph_is_not_replaced(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="is not a graph folder, so it is not replaced"):
        embed(random_graph(1), tmp_path, topology=topologies.make("sgc"), overwrite=True)
