"""Embeddings computed part by part are those of the whole graph, to the last bit."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.engine import LocalEngine
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.ray_engine import RayEngine
from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import open_graph_folder
from evergraph.graphs.split_folder import SplitFolder, write_split
from evergraph.topology import TopologyEncoder, topologies
from evergraph.topology.column_blocks import encode_within
from evergraph.topology.embedding_folder import embed
from evergraph.topology.embedding_layout import Nodes
from evergraph.topology.part_hops import PartHops
from evergraph.topology.part_step import count_products, next_state
from evergraph.topology.parted_graph import parted
from graphs_to_draw import graph_of, path_pairs, random_graph

HOPS = ("sgc", "s2gc", "appnp", "ppr", "mixhop", "identity")
MANY = Resources(memory=10**12)  # the same however busy the machine is


class Several(LocalEngine):
    """One process that says it is several, on as many machines as it is told."""

    def __init__(self, workers: int, machines: int = 1) -> None:
        self.workers, self.machines = workers, machines


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


def embedded(source: Graph | SplitFolder, topology: TopologyEncoder, **options: Any) -> Graph:
    with tempfile.TemporaryDirectory() as place:
        embed(source, Path(place, "out"), topology=topology, **options)
        if isinstance(source, SplitFolder):
            return SplitFolder.open(Path(place, "out")).whole()
        return open_graph_folder(Path(place, "out"), verify=True).in_memory()


def test_a_hop_on_a_path_by_hand(tmp_path: Path) -> None:
    # 0 - 1 - 2 - 3 with features 0 .. 3: degrees with self-loops are 2, 3, 3, 2.
    path = graph_of(path_pairs(4), 4, labels=[0, -1, 1, -1])
    split = write_split(path, tmp_path / "split", parts=2)
    six = 6**0.5
    expected = torch.tensor(
        [[1 / six], [1 / 3 + 2 / 3], [1 / 3 + 2 / 3 + 3 / six], [2 / six + 1.5]]
    )
    found = embedded(split, topologies.make("sgc", hops=1))
    torch.testing.assert_close(found.features, expected)
    assert torch.equal(found.indices, path.indices)
    labelled = embedded(split, topologies.make("sgc", hops=1), nodes="labelled")
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
    rows=st.sampled_from(["float16", "bfloat16"]),
)
encoders = half | st.builds(topologies.make, st.sampled_from(HOPS), self_loops=st.booleans())


@given(graphs, encoders, st.integers(1, 6), st.integers(1, 2))
def test_parts_give_the_bits_of_the_whole(
    graph: Graph, topology: TopologyEncoder, parts: int, machines: int
) -> None:
    engine = Several(parts, machines)
    block = PartHops(
        parted(graph, workers=parts), topology, Resources(memory=10**12, engine=engine)
    ).block((0, 5))
    list(block.before_last())
    found = torch.cat(list(engine.map(next_state, block.steps, shared=block.shared())))
    assert torch.equal(found, encode_within(topology, graph, resources=MANY))


@settings(deadline=None, max_examples=6)  # a disk takes its time
@given(graphs, encoders, st.integers(1, 6), st.sampled_from(["all", "labelled"]))
def test_a_split_graph_gives_a_split_graph(
    graph: Graph, topology: TopologyEncoder, parts: int, nodes: Nodes
) -> None:
    expected = encode_within(topology, graph, resources=MANY)
    with tempfile.TemporaryDirectory() as place:
        split = write_split(graph, Path(place), parts=parts)
        found = embedded(split, topology, nodes=nodes)
    if nodes == "labelled":
        known = graph.labels >= 0
        assert torch.equal(found.features, expected[known])
        assert torch.equal(found.labels, graph.labels[known])
        assert found.num_edges == 0
    else:
        assert torch.equal(found.features, expected)
        same_graph(found, graph)


def same_graph(found: Graph, graph: Graph) -> None:
    for name in ("indptr", "indices", "labels", "weights"):
        ours, theirs = getattr(found, name), getattr(graph, name)
        assert (ours is None and theirs is None) or torch.equal(ours, theirs), name
    assert found.undirected == graph.undirected


def test_columns_go_in_blocks_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("evergraph.topology.part_hops.PartHops.widest", lambda self: 2)
    graph, told = random_graph(3, dims=5), []
    for name in HOPS:
        topology = topologies.make(name)
        found = embedded(graph, topology, on_progress=lambda *said: told.append(said))
        assert torch.equal(found.features, encode_within(topology, graph, resources=MANY)), name
    assert told[:7] == [("embed", done, 6) for done in range(7)]  # sgc: 3 blocks, 2 hops


def test_kernels_of_the_whole_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # From so many entries on the whole takes numba; no part has as many by itself.
    pytest.importorskip("numba")
    graph = random_graph(5, nodes=40, edges=200)
    loops = graph.num_edges + graph.num_nodes
    monkeypatch.setattr("evergraph.graphs.kernels.choice.NUMBA_PAYS_FROM", loops)
    split = write_split(graph, tmp_path, parts=3)
    topology = topologies.make("appnp")
    expected = encode_within(topology, graph, resources=MANY)
    assert torch.equal(embedded(split, topology).features, expected)


def test_what_is_not_made_of_plain_hops_is_refused() -> None:
    for name in ("reservoir", "h2gcn"):
        with pytest.raises(ConfigurationError, match=f"plain hops .*{name}"):
            count_products(topologies.make(name))
    for name, hops in (("sgc", 2), ("identity", 0), ("mixhop", 2)):
        assert count_products(topologies.make(name)) == hops


class StoppedError(Exception):
    """Somebody pulled the plug."""


class StopsAfter(Several):
    """Does so many pieces of work whose results come here, and no more."""

    def __init__(self, left: int) -> None:
        super().__init__(3)
        self.left, self.worked = left, []

    def map(self, work: Any, items: Any, **given: Any) -> Any:
        for found in super().map(work, items, **given):
            self.worked.append(work.__name__)
            if work.__name__ == "write_rows":
                if not self.left:
                    raise StoppedError
                self.left -= 1
            yield found


@pytest.mark.parametrize("split", [True, False])
def test_what_was_stopped_goes_on(
    split: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evergraph.topology.part_hops.PartHops.widest", lambda self: 2)
    graph, topology = random_graph(3, dims=5), topologies.make("s2gc")
    source = write_split(graph, tmp_path / "split", parts=3) if split else graph
    out = tmp_path / "out"
    with pytest.raises(StoppedError):  # three blocks of three parts: within the second block
        embed(source, out, topology=topology, resources=Resources(engine=StopsAfter(4)))
    with pytest.raises(DataError, match="holds no finished graph"):
        open_graph_folder(out)
    progress = json.loads((out / "embedding.json").read_text())
    assert (progress["columns"], progress["stop"], progress["written"]) == (1, 3, [0])
    engine = StopsAfter(99)
    assert embed(source, out, topology=topology, resources=Resources(engine=engine))
    assert engine.worked.count("write_rows") == 5
    found = SplitFolder.open(out).whole() if split else open_graph_folder(out)
    assert torch.equal(found.features, encode_within(topology, graph, resources=MANY))
    assert not (out / "embedding.json").exists()
    assert not embed(source, out, topology=topology, resources=Resources(engine=engine))
    with pytest.raises(DataError, match="holds another graph: choose another folder"):
        embed(source, out, topology=topologies.make("sgc"))


def test_a_part_that_lost_its_files_begins_again(tmp_path: Path) -> None:
    graph, topology = random_graph(3), topologies.make("sgc")
    source, out = write_split(graph, tmp_path / "split", parts=3), tmp_path / "out"
    with pytest.raises(StoppedError):
        embed(source, out, topology=topology, resources=Resources(engine=StopsAfter(2)))
    (out / "part-00000" / "features.npy").unlink()
    embed(source, out, topology=topology)
    expected = encode_within(topology, graph, resources=MANY)
    assert torch.equal(SplitFolder.open(out).whole().features, expected)


def test_what_is_no_graph_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="is no graph folder, so it is not replaced"):
        embed(random_graph(1), tmp_path, topology=topologies.make("sgc"), overwrite=True)


def test_workers_hand_hops_to_each_other(ray_engine: RayEngine, tmp_path: Path) -> None:
    graph, topology = random_graph(4, nodes=30, edges=90), topologies.make("appnp")
    split = write_split(graph, tmp_path / "split", parts=3)
    resources = Resources(memory=10**12, engine=ray_engine)
    expected = encode_within(topology, graph, resources=MANY)
    for source in (split, graph):
        found = embedded(source, topology, resources=resources)
        assert torch.equal(found.features, expected)
