"""Embeddings that follow a graph are those computed from scratch, and cost only what changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs.kernels.scaled_rows import numba_works
from evergraph.online.graph import corrections, neighbour_lists
from evergraph.online.graph.corrections import Pushed
from evergraph.online.graph.graph_change import EmbeddingUpdate
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.graph.live_smoother import LiveSmoother
from evergraph.topology import EmbeddingCache, topologies

NO_EDGES = torch.empty(2, 0, dtype=torch.int64)
every_topology = pytest.mark.parametrize("name", topologies.names())
LINEAR = ("appnp", "identity", "ppr", "s2gc", "sgc")


def pairs_of(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def path(nodes: int, topology: str = "sgc", **given: Any) -> tuple[GrowingGraph, LiveEmbeddings]:
    """0 - 1 - 2 - ... with features that differ, and its embeddings."""
    hops, undirected = given.get("hops", 2), given.get("undirected", True)
    scaling = given.get("scaling", "none")
    graph = GrowingGraph(num_features=2, undirected=undirected)
    live = LiveEmbeddings(topologies.make(topology, hops=hops), num_features=2, scaling=scaling)
    features = torch.randn(nodes, 2, generator=torch.Generator().manual_seed(0))
    edges = pairs_of(*((v, v + 1) for v in range(nodes - 1)))
    live.update(graph, graph.add(features, edges))
    return graph, live


def from_scratch(graph: GrowingGraph, live: LiveEmbeddings) -> tuple[Tensor, Tensor]:
    whole, positions = graph.to_graph()
    return positions, EmbeddingCache(live.topology, scaling=live.scaling).encode(whole)


def check(graph: GrowingGraph, live: LiveEmbeddings) -> None:
    positions, expected = from_scratch(graph, live)
    torch.testing.assert_close(live.of(positions), expected, atol=1e-5, rtol=1e-5)


#  One node comes to the end of the path 0 - 1 - 2: by hand, Â x before and after.
def test_one_hop_by_hand() -> None:
    graph = GrowingGraph(num_features=1)
    live = LiveEmbeddings(topologies.make("sgc", hops=1), num_features=1, scaling="none")
    live.update(graph, graph.add(torch.tensor([[1.0], [2.0], [4.0]]), pairs_of((0, 1), (1, 2))))
    moved = live.update(graph, graph.add(torch.tensor([[8.0]]), pairs_of((2, 3))))
    assert moved.nodes.tolist() == [1, 2, 3]  # 1 because 2 counts for less: degree 3, not 2
    s6 = 6**-0.5
    before = [1 * s6 + 2 / 3 + 4 * s6, 2 * s6 + 4 / 2, 0.0]
    after = [1 * s6 + 2 / 3 + 4 / 3, 2 / 3 + 4 / 3 + 8 * s6, 4 * s6 + 8 / 2]
    assert moved.before.flatten().tolist() == pytest.approx(before)
    assert moved.after.flatten().tolist() == pytest.approx(after)
    assert live.of(torch.tensor([0, 3])).flatten().tolist() == pytest.approx(
        [1 / 2 + 2 * s6, after[2]]
    )


@pytest.mark.parametrize(("hops", "expected"), [(0, [9]), (1, [7, 8, 9]), (2, [6, 7, 8, 9])])
@pytest.mark.parametrize("name", ["sgc", "mixhop", "h2gcn", "reservoir"])
def test_only_who_feels_a_change_is_computed(name: str, hops: int, expected: list[int]) -> None:
    graph, live = path(9, name, hops=hops)
    moved = live.update(graph, graph.add(torch.ones(1, 2), pairs_of((8, 9))))
    assert moved.nodes.tolist() == expected
    assert moved.before[-1].tolist() == [0.0] * live.dims
    assert moved.after.equal(live.of(moved.nodes))
    check(graph, live)


def test_a_change_is_felt_along_arrows_only() -> None:
    graph, live = path(9, hops=2, undirected=False)
    gives = graph.add(torch.ones(1, 2), pairs_of((9, 4)))  # 4 has another degree
    assert live.update(graph, gives).nodes.tolist() == [4, 5, 6, 9]
    takes = graph.add(torch.ones(1, 2), pairs_of((4, 10)))  # nobody looks at the new node
    assert live.update(graph, takes).nodes.tolist() == [10]
    check(graph, live)


def test_what_is_read_does_not_grow_with_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    product, push = LiveSmoother.product, corrections.push

    def counted(self: LiveSmoother, graph: GrowingGraph, nodes: Tensor, values: Tensor) -> Tensor:
        read.append(len(nodes))
        return product(self, graph, nodes, values)

    def pushed(*given: Any, **named: Any) -> Pushed:
        found = push(*given, **named)
        read.append(len(found.places))
        return found

    monkeypatch.setattr(LiveSmoother, "product", counted)
    monkeypatch.setattr(corrections, "push", pushed)
    costs = []
    for nodes in (200, 2000):
        graph, live = path(nodes)
        read.clear()
        live.update(graph, graph.add(torch.ones(1, 2), pairs_of((10, nodes))))
        costs.append(list(read))
    # 10 and the new one give otherwise, to 4 and 2, and the new one is summed. Then 9, 10, 11 and
    # the new one do, to 3, 4, 3 and 2; all that 10 gathers from is other, so that it is summed too.
    assert costs[0] == costs[1] == [6, 1, 12, 2]


def test_a_removed_node_leaves_nothing() -> None:
    graph, live = path(6, "reservoir", scaling="unit")
    moved = live.update(graph, graph.remove(torch.tensor([2])))
    assert moved.nodes.tolist() == [0, 1, 3, 4, 5]
    assert not live.of(torch.tensor([2])).any()
    kept = {n: t for n, t in live.state().items() if n.startswith(("state", "message"))}
    assert set(kept) == {"state_1", "state_2", "message_0", "message_1"}
    assert not any(tensor[2].any() for tensor in kept.values())
    check(graph, live)


def test_the_last_node_may_go_and_an_empty_graph_may_grow() -> None:
    graph, live = path(1)
    assert len(live.update(graph, graph.remove(torch.tensor([0]))).nodes) == 0
    assert len(live.update(graph, graph.add(torch.empty(0, 2), NO_EDGES)).nodes) == 0
    live.update(graph, graph.add(torch.ones(2, 2), pairs_of((1, 2))))
    check(graph, live)


deltas = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=10),
        st.sets(st.integers(0, 60), max_size=2),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def changes(graph: GrowingGraph, delta: tuple[int, list[tuple[int, int]], set[int], bool]):  # type: ignore[no-untyped-def]
    """Yield what a drawn delta does to a graph: an addition, then a removal."""
    count, drawn, gone, _ = delta
    alive = graph.alive.nonzero().flatten().tolist()
    known = alive + list(range(graph.num_nodes, graph.num_nodes + count))
    edges = [(known[a % len(known)], known[b % len(known)]) for a, b in drawn if known]
    generator = torch.Generator().manual_seed(graph.num_nodes)
    yield graph.add(torch.randn(count, 2, generator=generator), pairs_of(*edges))
    if known and gone:
        yield graph.remove(torch.tensor(sorted({known[node % len(known)] for node in gone})))


def follow(
    graph: GrowingGraph, live: LiveEmbeddings, change: GraphChange, shadow: Tensor
) -> Tensor:
    """Update, hold what is said to have moved against a shadow, and return the new shadow."""
    moved: EmbeddingUpdate = live.update(graph, change)
    shadow = torch.cat([shadow, torch.zeros(graph.num_nodes - len(shadow), live.dims)])
    assert set(change.new.tolist()) <= set(moved.nodes.tolist())
    assert moved.before.equal(shadow[moved.nodes])
    shadow[moved.nodes], shadow[change.removed] = moved.after, 0
    assert live.of(torch.arange(graph.num_nodes)).equal(shadow)  # nobody else moved
    return shadow


@every_topology
@settings(max_examples=25, deadline=None)
@given(
    deltas=deltas,
    undirected=st.booleans(),
    hops=st.sampled_from([2, 0, 1, 3]),
    self_loops=st.booleans(),
)
def test_after_any_deltas_embeddings_are_those_from_scratch(
    name: str, deltas: list[Any], undirected: bool, hops: int, self_loops: bool
) -> None:
    topology = topologies.make(name, hops=hops, self_loops=self_loops)
    graph = GrowingGraph(num_features=2, undirected=undirected)
    live = LiveEmbeddings(topology, num_features=2, scaling="none")
    shadow = torch.zeros(0, live.dims)
    for delta in deltas:
        for change in changes(graph, delta):
            shadow = follow(graph, live, change, shadow)
    check(graph, live)


@every_topology
@settings(max_examples=15, deadline=None)
@given(deltas=deltas, undirected=st.booleans())
def test_who_stopped_and_was_restored_has_the_same_bits(
    name: str, deltas: list[Any], undirected: bool
) -> None:
    def start() -> tuple[GrowingGraph, LiveEmbeddings]:
        return (
            GrowingGraph(num_features=2, undirected=undirected),
            LiveEmbeddings(topologies.make(name), num_features=2),
        )

    (graph, live), (other_graph, other) = start(), start()
    for delta in deltas:
        for change in changes(graph, delta):
            live.update(graph, change)
        for change in changes(other_graph, delta):
            other.update(other_graph, change)
        if delta[-1]:
            kept = other_graph.state(), other.state()
            other_graph, other = start()
            other_graph.restore(kept[0])
            other.restore(kept[1])
    for first, second in ((graph, other_graph), (live, other)):
        assert first.state().keys() == second.state().keys()
        assert all(second.state()[name].equal(tensor) for name, tensor in first.state().items())


KERNELS = ["torch", "numba"]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numba" and not numba_works():
        pytest.skip("numba is not at hand")
    monkeypatch.setattr(neighbour_lists, "is_compiled", lambda _: request.param == "numba")
    return str(request.param)


def random_graph(nodes: int = 200, width: int = 19) -> GrowingGraph:
    generator = torch.Generator().manual_seed(1)
    graph = GrowingGraph(num_features=width)
    edges = torch.randint(nodes, (2, 4 * nodes), generator=generator)
    edges[0, :150] = 0  # a hub
    graph.add(torch.randn(nodes, width, generator=generator), edges)
    return graph


@pytest.mark.parametrize("self_loops", [True, False])
def test_bits_of_a_smoothed_row_do_not_depend_on_other_rows(kernel: str, self_loops: bool) -> None:
    graph, smoother = random_graph(), LiveSmoother(self_loops=self_loops)
    every = torch.arange(graph.num_nodes)
    smoother.refresh(graph, every)
    whole = smoother.product(graph, every, graph.features)
    generator = torch.Generator().manual_seed(0)
    for size in (1, 2, 7, 40, 199):
        some = torch.randperm(graph.num_nodes, generator=generator)[:size]
        assert smoother.product(graph, some, graph.features).equal(whole[some])
        assert smoother.product(graph, some, graph.features[:, :3].contiguous()).equal(
            whole[some][:, :3]
        )


@pytest.mark.parametrize("name", [name for name in topologies.names() if name != "h2gcn"])
def test_how_the_graph_came_to_be_shows_in_the_last_digit_at_most(name: str, kernel: str) -> None:
    """One delta or many: every row ends as the same sums, corrected or made anew."""
    at_once = random_graph(60, 3)
    live = LiveEmbeddings(topologies.make(name, hops=2), num_features=3)
    live.update(at_once, GraphChange(new=torch.arange(60)))
    piecemeal = GrowingGraph(num_features=3)
    other = LiveEmbeddings(topologies.make(name, hops=2), num_features=3)
    for start in range(0, 60, 7):
        stop = min(start + 7, 60)
        indptr, sources = at_once.rows(torch.arange(start, stop))
        targets = torch.arange(start, stop).repeat_interleave(torch.from_numpy(indptr).diff())
        edges = torch.stack([torch.from_numpy(sources).long(), targets])
        known = edges[:, edges[0] < stop]
        other.update(piecemeal, piecemeal.add(at_once.features[start:stop], known))
    positions = torch.arange(60)
    torch.testing.assert_close(other.of(positions), live.of(positions), atol=1e-6, rtol=0)
    check(piecemeal, other)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("undirected", [True, False])
def test_weights_tell_whose_features_an_embedding_is_made_of(name: str, undirected: bool) -> None:
    graph, live = path(8, name, undirected=undirected)
    live.update(graph, graph.remove(torch.tensor([6])))
    live.update(graph, graph.add(torch.ones(2, 2), pairs_of((8, 3), (9, 3), (8, 9))))
    for node in (0, 3, 5, 9):
        positions, weights = live.weights(graph, node)  # type: ignore[misc]
        total = weights @ graph.features[positions].double()
        torch.testing.assert_close(total.float(), live.of(torch.tensor([node]))[0])
        reached = graph.ego(node, hops=live.topology.hops, limit=99).nodes
        assert positions.tolist() == sorted(reached.tolist())


def test_weights_by_hand() -> None:
    graph, live = path(3, hops=1)
    positions, weights = live.weights(graph, 1)  # type: ignore[misc]
    assert positions.tolist() == [0, 1, 2]
    assert weights.tolist() == pytest.approx([6**-0.5, 1 / 3, 6**-0.5])


@pytest.mark.parametrize("name", sorted(set(topologies.names()) - set(LINEAR)))
def test_other_embeddings_have_no_weights(name: str) -> None:
    graph, live = path(3, name)
    assert live.weights(graph, 1) is None
