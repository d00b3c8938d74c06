"""Weights, edges that go and features that change: by hand, and against starting from scratch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassCodes
from evergraph.closed_form.codes import class_codes
from evergraph.graphs import UNLABELLED
from evergraph.graphs.kernels.scaled_rows import numba_works
from evergraph.online.graph import neighbour_lists
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_codes import LiveCodes
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.graph.live_smoother import LiveSmoother
from evergraph.topology import EmbeddingCache, topologies

KERNELS = ["torch", *(["numba"] if numba_works() else [])]


def pairs_of(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def path(*weights: float, undirected: bool = True) -> GrowingGraph:
    """0 - 1 - 2 - ... whose edges have these weights; features are 1, 2, 4, ..."""
    graph = GrowingGraph(num_features=1, undirected=undirected)
    edges = pairs_of(*((v, v + 1) for v in range(len(weights))))
    graph.add(2.0 ** torch.arange(len(weights) + 1)[:, None], edges, torch.tensor(weights))
    return graph


def followed(graph: GrowingGraph, hops: int = 1) -> LiveEmbeddings:
    live = LiveEmbeddings(topologies.make("sgc", hops=hops), num_features=1, scaling="none")
    live.update(graph, GraphChange(new=torch.arange(graph.num_nodes)))
    return live


def test_one_hop_by_hand() -> None:
    """0 -2- 1 -0.5- 2: with loops of 1 the rows sum up to 3, 3.5 and 1.5."""
    graph = path(2.0, 0.5)
    live = followed(graph)
    expected = [
        1 / 3 + 2 * 2 / (3 * 3.5) ** 0.5,
        2 * 1 / (3 * 3.5) ** 0.5 + 2 / 3.5 + 0.5 * 4 / (3.5 * 1.5) ** 0.5,
        0.5 * 2 / (3.5 * 1.5) ** 0.5 + 4 / 1.5,
    ]
    assert live.of(torch.arange(3)).flatten().tolist() == pytest.approx(expected)
    nodes, weights = live.weights(graph, 0) or (None, None)
    assert (nodes.tolist(), weights.tolist()) == ([0, 1], pytest.approx([1 / 3, 2 / 10.5**0.5]))


def test_a_weight_that_changes_an_edge_that_goes_and_other_features_by_hand() -> None:
    graph = path(2.0, 0.5)
    live = followed(graph)
    change = graph.add(torch.empty(0, 1), pairs_of((1, 0)), torch.tensor([1.0]))
    assert (change.touched.tolist(), len(change.new)) == ([0, 1], 0)
    assert live.update(graph, change).nodes.tolist() == [0, 1, 2]
    assert float(live.of(torch.tensor([0]))) == pytest.approx(1 / 2 + 2 / (2 * 2.5) ** 0.5)
    change = graph.disconnect(pairs_of((2, 1)))
    assert change.touched.tolist() == [1, 2]
    live.update(graph, change)
    assert live.of(torch.arange(3)).flatten().tolist() == pytest.approx([1.5, 1.5, 4.0])
    change = graph.renew(torch.tensor([2, 0]), torch.tensor([[4.0], [6.0]]))
    assert repr(change) == "GraphChange(0 new, 0 touched, 0 removed, 1 renewed)"  # 2 has the same
    assert live.update(graph, change).nodes.tolist() == [0, 1]
    assert live.of(torch.arange(3)).flatten().tolist() == pytest.approx([4.0, 4.0, 4.0])


@pytest.mark.parametrize("undirected", [True, False])
def test_the_last_weight_counts_and_0_is_no_edge(undirected: bool) -> None:
    graph = path(1.0, 3.0, undirected=undirected)
    twice = pairs_of((0, 1), (1, 0), (2, 1), (1, 2), (0, 2), (2, 2))
    change = graph.add(torch.empty(0, 1), twice, torch.tensor([5.0, 7.0, 4.0, 0.0, 0.0, 9.0]))
    assert change.touched.tolist() == [0, 1, 2]
    there, back = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([1, 0, 2, 1, 2])
    found = [7.0, 7.0, 0.0, 0.0, 0.0] if undirected else [5.0, 7.0, 0.0, 4.0, 0.0]
    assert graph.weights_of(there, back).tolist() == found
    assert graph.lists(there, back).tolist() == [weight > 0 for weight in found]
    known = graph.add(torch.empty(0, 1), pairs_of((0, 1)))  # no weight: as it was
    assert (len(known.touched), float(graph.weights_of(there[:1], back[:1]))) == (0, found[0])


def test_no_weights_are_kept_before_the_first_that_is_not_1() -> None:
    graph, plain = path(1.0, 1.0), GrowingGraph(num_features=1)
    plain.add(graph.features, pairs_of((0, 1), (1, 2)))
    assert not graph.weighted
    assert (graph.nbytes, graph.state().keys()) == (plain.nbytes, plain.state().keys())
    assert graph.to_graph()[0].weights is None
    graph.add(torch.empty(0, 1), pairs_of((0, 1)), torch.tensor([2.0]))
    assert graph.nbytes == plain.nbytes + 4 * 4
    assert graph.to_graph()[0].weights.tolist() == [2.0, 2.0, 1.0, 1.0]
    assert graph.ego(1, hops=1, limit=3).weights.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("undirected", [True, False])
def test_weights_move_with_lists_that_outgrow_their_room(undirected: bool) -> None:
    star = GrowingGraph(num_features=1, undirected=undirected)
    star.add(torch.zeros(1, 1), pairs_of())
    for leaf in range(1, 120):
        star.add(torch.zeros(1, 1), pairs_of((leaf, 0)), torch.tensor([leaf / 8]))
    assert star.weights(torch.tensor([0])).tolist() == [leaf / 8 for leaf in range(1, 120)]
    assert star.gatherers(torch.tensor([7])).tolist() == [0, 7]
    plain = GrowingGraph(num_features=1, undirected=undirected)
    plain.add(torch.zeros(3, 1), pairs_of((0, 1)))
    plain.add(torch.zeros(0, 1), pairs_of((1, 2)), torch.tensor([0.5]))  # the first weighs 1
    assert plain.weights(torch.tensor([1])).tolist() == ([1.0, 0.5] if undirected else [1.0])


def test_codes_see_weights_by_hand() -> None:
    """0 -4- 1 -1- 2 with 0 and 2 labelled: N_10 = 4/√(4·5), N_12 = 1/√5; 1 sees 0 the more."""
    graph, codes = path(4.0, 1.0), LiveCodes(width=8)
    codes.name(["x", "y"])
    everyone = GraphChange(new=torch.arange(3))
    codes.update(graph, everyone, torch.tensor([0, 2]), torch.tensor([0, 1]))
    x, y = class_codes(["x", "y"], width=8)
    near, far = codes.of(torch.tensor([1]))[0].split(8)
    mixed = 4 / 20**0.5 * x + y / 5**0.5
    torch.testing.assert_close(near, mixed / mixed.norm())
    assert not far.any()
    torch.testing.assert_close(codes.of(torch.tensor([0]))[0, 8:], y)  # its own is taken out


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("self_loops", [True, False])
def test_a_row_has_the_same_bits_in_any_company(
    monkeypatch: pytest.MonkeyPatch, kernel: str, self_loops: bool
) -> None:
    monkeypatch.setattr(neighbour_lists, "is_compiled", lambda _: kernel == "numba")
    draw = torch.Generator().manual_seed(0)
    graph, smoother = GrowingGraph(num_features=3), LiveSmoother(self_loops=self_loops)
    edges = torch.randint(12, (2, 40), generator=draw)
    graph.add(torch.zeros(12, 3), edges, torch.rand(40, generator=draw) + 0.1)
    smoother.refresh(graph, torch.arange(12))
    values = torch.randn(12, 3, generator=draw)
    whole = smoother.product(graph, torch.arange(12), values)
    alone = [smoother.product(graph, torch.tensor([node]), values) for node in range(12)]
    assert torch.cat(alone).equal(whole)
    other = LiveSmoother(self_loops=self_loops)
    for node in range(12):
        other.refresh(graph, torch.tensor([node]))
    assert other.state()["scalings"].equal(smoother.state()["scalings"])


steps = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(
            st.tuples(
                st.integers(0, 30), st.integers(0, 30), st.sampled_from([0.0, 0.25, 1.0, 6.0])
            ),
            max_size=8,
        ),
        st.booleans(),
        st.lists(st.integers(0, 60), max_size=2),
        st.sets(st.integers(0, 30), max_size=2),
        st.sets(st.integers(0, 30), max_size=1),
    ),
    min_size=1,
    max_size=5,
)


def some_step(graph: GrowingGraph, step: tuple[int, list, bool, list, set, set]) -> GraphChange:
    """Add, weigh, cut and renew as drawn, as one change."""
    count, drawn, weigh, cut, renewed, _ = step
    known = graph.alive.nonzero().flatten().tolist()
    known += range(graph.num_nodes, graph.num_nodes + count)
    at = len(known) and (lambda place: known[place % len(known)])
    edges = pairs_of(*((at(a), at(b)) for a, b, _ in drawn if known))
    weights = torch.tensor([w for *_, w in drawn if known]) if weigh else None
    draw = torch.Generator().manual_seed(len(known))
    change = graph.add(torch.randn(count, 2, generator=draw), edges, weights)
    rows = torch.arange(graph.num_nodes)
    owners = rows.repeat_interleave(graph.degrees(rows))
    listed = torch.stack([torch.from_numpy(graph.rows(rows)[1]).long(), owners])
    if listed.shape[1]:
        change = change.then(
            graph.disconnect(listed[:, [place % listed.shape[1] for place in cut]])
        )
    nodes = torch.tensor(sorted({at(place) for place in renewed if known}), dtype=torch.int64)
    return change.then(graph.renew(nodes, torch.randn(len(nodes), 2, generator=draw)))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["sgc", "mixhop", "h2gcn"])
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=steps, undirected=st.booleans())
def test_any_changes_come_to_what_starting_from_scratch_does(
    monkeypatch: pytest.MonkeyPatch, kernel: str, name: str, steps: list, undirected: bool
) -> None:
    monkeypatch.setattr(neighbour_lists, "is_compiled", lambda _: kernel == "numba")
    graph = GrowingGraph(num_features=2, undirected=undirected)
    live = LiveEmbeddings(topologies.make(name, hops=2), num_features=2, scaling="none")
    codes, encoder = LiveCodes(width=4), ClassCodes(width=4)
    codes.name([0, 1])
    for step in steps:
        change = some_step(graph, step)
        live.update(graph, change)
        codes.update(graph, change, change.new, change.new % 2)
        gone = [place % graph.num_nodes for place in step[-1] if graph.num_nodes]
        gone = torch.tensor([place for place in gone if graph.alive[place]], dtype=torch.int64)
        change = graph.remove(gone)
        live.update(graph, change)
        codes.update(graph, change, gone, torch.full_like(gone, UNLABELLED))
        kept = graph.state()
        graph = GrowingGraph(num_features=2, undirected=undirected)
        graph.restore(kept)
    whole, positions = graph.to_graph()
    expected = EmbeddingCache(live.topology, scaling="none").encode(whole)
    torch.testing.assert_close(live.of(positions), expected, atol=1e-5, rtol=1e-5)
    shown = encoder.scaled(encoder.encode(whole.showing(positions % 2)))
    torch.testing.assert_close(codes.of(positions), shown, atol=1e-5, rtol=0)
