"""Rows corrected by differences: by hand, without drift, and the same as rows summed anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import smoother
from evergraph.graphs.kernels.scaled_rows import numba_works
from evergraph.online.graph import hop_states, neighbour_lists
from evergraph.online.graph.corrections import DRIFT, Moved, differences
from evergraph.online.graph.graph_change import GraphChange
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.hop_states import HopStates
from evergraph.online.graph.live_codes import LiveCodes
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.topology import SGC, EmbeddingCache, MixHop, topologies

KERNELS = ["torch", *(["numba"] if numba_works() else [])]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(neighbour_lists, "is_compiled", lambda _: request.param == "numba")
    monkeypatch.setattr(hop_states, "WHOLE", 9.0)  # so small a graph would be summed as a whole
    return str(request.param)


def pairs_of(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def followed(graph: GrowingGraph, topology: Any = None, **given: Any) -> LiveEmbeddings:
    given = {"scaling": "none", **given}
    live = LiveEmbeddings(topology or SGC(hops=1), num_features=graph.num_features, **given)
    live.update(graph, GraphChange(new=torch.arange(graph.num_nodes)))
    return live


def path(*features: float) -> GrowingGraph:
    graph = GrowingGraph(num_features=1)
    edges = pairs_of(*((v, v + 1) for v in range(len(features) - 1)))
    graph.add(torch.tensor(features)[:, None], edges)
    return graph


def source(live: LiveEmbeddings) -> HopStates:
    assert isinstance(live._source, HopStates)
    return live._source


def drifts(live: LiveEmbeddings, hop: int = 1) -> list[float]:
    found: list[float] = source(live)._drifts[hop - 1].array.tolist()
    return found


def test_a_push_on_a_path_of_four_by_hand(kernel: str) -> None:
    """0 - 1 - 2 - 3: degrees with loops are 2, 3, 3, 2. Node 0 turns from 1 to 3."""
    graph = path(1, 2, 4, 8)
    live = followed(graph)
    change = graph.renew(torch.tensor([0]), torch.tensor([[3.0]]))
    live._smoother.refresh(graph, change.touched)  # of nobody
    sent = Moved(change.renewed, torch.tensor([[1.0]]), torch.tensor([[3.0]]))
    found = differences(graph, live._smoother, sent, graph.features, change.touched, change.entries)
    assert found.rows.flatten().tolist() == pytest.approx([2 / 2**0.5])  # d_0 = (3 - 1) / √2
    assert found.pushed.rows.tolist() == [0, 1]
    moved = live.update(graph, change)
    assert moved.nodes.tolist() == [0, 1]
    before = [1 / 2 + 2 / 6**0.5, 1 / 6**0.5 + 2 / 3 + 4 / 3]
    after = [before[0] + 2 / 2, before[1] + 2 / 6**0.5]
    assert moved.before.flatten().tolist() == pytest.approx(before)
    assert moved.after.flatten().tolist() == pytest.approx(after)
    assert [drift > 0 for drift in drifts(live)] == [True, True, False, False]


def test_an_edge_that_goes_by_hand(kernel: str) -> None:
    """0 - 1 - 2 - 3 without 0 - 1: what 1 is scaled by turns from 1/√3 to 1/√2, 0's to 1."""
    graph = path(1, 2, 4, 8)
    live = followed(graph)
    change = graph.disconnect(pairs_of((1, 0)))
    assert change.entries.differences.tolist() == [-1, -1]
    moved = live.update(graph, change)
    assert moved.nodes.tolist() == [0, 1, 2]
    after = [1, 2 / 2 + 4 / 6**0.5, 2 / 6**0.5 + 4 / 3 + 8 / 6**0.5]
    assert moved.after.flatten().tolist() == pytest.approx(after)
    assert drifts(live)[2] > 0 == drifts(live)[3]  # 2 was corrected, by what 1 gives


@pytest.mark.parametrize(("most", "exact"), [(DRIFT, True), (float("inf"), False)])
def test_what_is_large_comes_and_goes_and_leaves_nothing(
    kernel: str, most: float, exact: bool
) -> None:
    """A neighbour of a million: without a bound, corrected rows keep what it rounded away."""
    graph = GrowingGraph(num_features=1)
    leaves = torch.rand(40, 1, generator=torch.Generator().manual_seed(0))
    graph.add(torch.cat([leaves, torch.tensor([[1e6]])]), pairs_of(*((0, v) for v in range(1, 40))))
    live = followed(graph)
    source(live)._most = most
    for _ in range(3):
        live.update(graph, graph.add(torch.empty(0, 1), pairs_of((0, 40))))
        live.update(graph, graph.disconnect(pairs_of((40, 0))))
    off = abs(float(live.of(torch.tensor([0])) - followed(graph).of(torch.tensor([0]))))
    assert (off < 1e-6) == exact


def test_what_is_forgotten_is_summed_away(kernel: str) -> None:
    """Whoever felt a node that goes is summed anew, whatever it was corrected by before."""
    graph = path(*range(1, 10))
    live = followed(graph, SGC(hops=2))
    live.update(graph, graph.renew(torch.tensor([4]), torch.tensor([[1e4]])))
    assert all(drifts(live, 2)[node] > 0 for node in (2, 3, 5, 6))
    live.update(graph, graph.remove(torch.tensor([4])))
    assert not any(drifts(live, 2)[2:7])
    assert live.of(torch.arange(9)).equal(followed(graph, SGC(hops=2)).of(torch.arange(9)))


steps = st.lists(
    st.tuples(
        st.sampled_from(["join", "part", "renew", "grow", "weigh"]),
        st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=3),
        st.integers(0, 6),  # a power of ten
    ),
    min_size=1,
    max_size=8,
)


def follow(graph: GrowingGraph, step: tuple[str, list[tuple[int, int]], int]) -> GraphChange:
    """Do what was drawn to a graph."""
    verb, drawn, power = step
    ends, some = pairs_of(*drawn) % graph.num_nodes, torch.empty(0, 2)
    rows = 10.0**power * (1 + ends.T.float())
    if verb == "join":
        return graph.add(some, ends)
    if verb == "weigh":
        return graph.add(some, ends, 1.0 + ends[0])
    if verb == "part":
        return graph.disconnect(ends)
    if verb == "grow":
        new = graph.num_nodes + torch.arange(len(rows))
        return graph.add(rows, torch.stack([new, ends[0]]))
    nodes, last = np.unique(ends[0].numpy(), return_index=True)
    return graph.renew(torch.from_numpy(nodes), rows[torch.from_numpy(last)])


@pytest.mark.parametrize("name", ["sgc", "mixhop"])
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=steps, undirected=st.booleans(), together=st.booleans())
def test_any_history_comes_to_the_final_graph_whatever_the_sizes(
    kernel: str, name: str, steps: list[Any], undirected: bool, together: bool
) -> None:
    """Features that differ by a million: a row is exact beside its own largest value."""
    graph = GrowingGraph(num_features=2, undirected=undirected)
    ring = pairs_of(*((v, (v + 1) % 8) for v in range(8)), *((v, 0) for v in range(2, 7)))
    graph.add(torch.rand(8, 2, generator=torch.Generator().manual_seed(0)), ring)
    live = followed(graph, topologies.make(name, hops=2))
    waiting: GraphChange | None = None
    for step in steps:
        change = follow(graph, step)
        grows = len(change.new) > 0
        if waiting is not None and grows:
            live.update(graph, waiting.then(GraphChange()))
            waiting = None
        change = change if waiting is None else waiting.then(change)
        waiting = change if together and not grows else None
        if waiting is None:
            live.update(graph, change)
    if waiting is not None:
        live.update(graph, waiting)
    whole, positions = graph.to_graph()
    expected = EmbeddingCache(live.topology, scaling="none").encode(whole)
    largest = expected.abs().amax(1, keepdim=True)
    assert bool(((live.of(positions) - expected).abs() <= 1e-5 * largest).all())


@pytest.mark.parametrize("undirected", [True, False])
def test_where_a_change_reaches_everything_all_is_summed_and_what_stays_is_not_told(
    kernel: str, monkeypatch: pytest.MonkeyPatch, undirected: bool
) -> None:
    monkeypatch.setattr(hop_states, "WHOLE", 0.0)
    monkeypatch.setattr(HopStates, "_correct", None)
    graph = GrowingGraph(num_features=1, undirected=undirected)
    edges = pairs_of(*((v, v + 1) for v in range(8)))
    graph.add(torch.arange(9.0)[:, None], edges)
    live = followed(graph, SGC(hops=2))
    moved = live.update(graph, graph.renew(torch.tensor([4]), torch.tensor([[7.0]])))
    assert moved.nodes.tolist() == ([2, 3, 4, 5, 6] if undirected else [4, 5, 6])
    assert moved.after.equal(live.of(moved.nodes))
    assert live.of(torch.arange(9)).equal(followed(graph, SGC(hops=2)).of(torch.arange(9)))


@pytest.mark.parametrize("scheme", ["row", "none"])
@pytest.mark.parametrize("undirected", [True, False])
def test_means_and_sums_follow_as_well(kernel: str, scheme: Any, undirected: bool) -> None:
    graph = GrowingGraph(num_features=1, undirected=undirected)
    graph.add(torch.arange(1.0, 10)[:, None], pairs_of(*((v, v + 1) for v in range(8))))
    live = followed(graph, SGC(hops=2), scheme=scheme)
    change = graph.add(torch.empty(0, 1), pairs_of((0, 4), (7, 2)))
    change = change.then(graph.disconnect(pairs_of((5, 6))))
    felt = live.update(graph, change.then(graph.renew(torch.tensor([8]), torch.ones(1, 1))))
    whole = smoother(graph.to_graph()[0], scheme=scheme)
    expected = whole.product(whole.product(graph.features))
    torch.testing.assert_close(live.of(torch.arange(9)), expected)
    if not undirected:  # 4, 2 and 6 gather otherwise; nobody is told of their degrees but they
        assert felt.nodes.tolist() == [2, 3, 4, 5, 6, 7, 8]


def test_other_schemes_ask_for_a_topology_of_hops() -> None:
    with pytest.raises(
        ConfigurationError, match="scheme must be 'symmetric' with topology 'h2gcn'"
    ):
        LiveEmbeddings(topologies.make("h2gcn"), num_features=1, scheme="row")


@pytest.mark.parametrize(
    "topology", [SGC(), MixHop(keep=(0, 2), unit=True), topologies.make("h2gcn")]
)
def test_a_snapshot_of_an_older_version_is_completed(topology: Any) -> None:
    graph = path(1, 2, 4, 8, 16)
    live, codes = followed(graph, topology), LiveCodes(width=4)
    codes.name(["x", "y"])
    everyone = GraphChange(new=torch.arange(5))
    codes.update(graph, everyone, torch.tensor([0, 3]), torch.tensor([0, 1]))
    kept = [part.state() for part in (live, codes)]
    new = {"drift_1", "drift_2", "state_2", "own", "unscaled"}
    other = LiveEmbeddings(topology, num_features=1, scaling="none")
    others = LiveCodes(width=4)
    others.name(["x", "y"])
    for part, state in zip((other, others), kept, strict=True):
        part.restore({name: tensor for name, tensor in state.items() if name not in new})
    others.show(torch.tensor([0, 3]), torch.tensor([0, 1]))
    for restored, first in ((other, live), (others, codes)):
        restored.attach(graph)
        assert restored.of(torch.arange(5)).equal(first.of(torch.arange(5)))
        assert restored.state().keys() == first.state().keys()
