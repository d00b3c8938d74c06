"""Class codes that follow a graph, by hand; with embeddings, after any history of it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassCodes
from evergraph.closed_form.codes import class_codes
from evergraph.closed_form.own_features import shape_of
from evergraph.graphs import UNLABELLED
from evergraph.online.arrays import Piece
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.graph.live_vectors import LiveCodes, LiveShape
from evergraph.topology import EmbeddingCache, topologies
from growing_paths import pairs_of, path

WIDTH = 8


NAMES = [3, 1, 2]  # of the classes 0, 1 and 2


def coded(graph: GrowingGraph, labels: dict[int, int]) -> LiveCodes:
    codes = LiveCodes(graph, width=WIDTH)
    codes.name(NAMES)
    everyone = GraphChange(new=torch.arange(graph.num_nodes))
    codes.update(everyone, torch.tensor([*labels]), torch.tensor([*labels.values()]))
    return codes


def codes_from_scratch(graph: GrowingGraph, labels: dict[int, int]) -> tuple[Tensor, Tensor]:
    whole, positions = graph.to_graph()
    names = [NAMES[labels[p]] if p in labels else UNLABELLED for p in positions.tolist()]
    encoder = ClassCodes(width=WIDTH)
    return positions, encoder.scaled(encoder.encode(whole.showing(torch.tensor(names))))


def test_codes_near_and_far_by_hand():
    """0 - 1 - 2 - 3 with 0 of class 0 and 2 of class 1."""
    codes = coded(path(0, 0, 0, 0), {0: 0, 2: 1})
    first, second = class_codes(NAMES[:2], width=WIDTH)
    near, far = codes.of(torch.tensor([1]))[0].split(WIDTH)
    mixed = first / 2**0.5 + second / 2  # N_10 = 1/√2, N_12 = 1/2
    torch.testing.assert_close(near, mixed / mixed.norm())
    assert not far.any()  # nothing with a label is two hops away
    near, far = codes.of(torch.tensor([0]))[0].split(WIDTH)
    assert not near.any()
    torch.testing.assert_close(far, second)  # its own code, which comes back to it, is not there


@pytest.mark.parametrize("leaves", [2, 50])
def test_rounding_leaves_nothing_of_a_nodes_own_label(leaves):
    """Were it only subtracted, its last digits would be scaled to unit length: a whole label."""
    graph = GrowingGraph(num_features=1)
    graph.add(torch.zeros(leaves + 1, 1), pairs_of(*((0, v + 1) for v in range(leaves))))
    codes = coded(graph, {1: 0})
    assert not codes.of(torch.tensor([1])).any()
    assert codes.of(torch.tensor([2]))[0, WIDTH:].norm() == pytest.approx(1.0)
    positions, expected = codes_from_scratch(graph, {1: 0})
    torch.testing.assert_close(codes.of(positions), expected)


@pytest.mark.parametrize("weight", [1.0, 1e6, 1e8])
def test_a_heavy_edge_does_not_show_a_node_its_own_label(weight):
    """0 = 1 - 2 = 3: an end sees the class two steps away, whatever its own is."""
    graph = GrowingGraph(num_features=1)
    pairs = pairs_of((0, 1), (1, 2), (2, 3))
    graph.add(torch.zeros(4, 1), pairs, torch.tensor([weight, 1.0, weight]))
    codes = coded(graph, {0: 0, 1: 1, 2: 2, 3: 0})
    other = class_codes(NAMES, width=WIDTH)[2]
    for label in (0, 1, 2, UNLABELLED):
        codes.update(GraphChange(), torch.tensor([0]), torch.tensor([label]))
        torch.testing.assert_close(codes.of(torch.tensor([0]))[0, WIDTH:], other)


place = st.integers(0, 40)


steps = st.lists(
    st.fixed_dictionaries(
        {
            "new": st.integers(0, 3),
            "edges": st.lists(
                st.tuples(place, place, st.sampled_from([0.0, 0.25, 1.0, 6.0, 1e-8, 1e8])),
                max_size=8,
            ),
            "weigh": st.booleans(),
            "cut": st.lists(place, max_size=2),
            "renewed": st.sets(place, max_size=2),
            "power": st.integers(0, 6),  # of ten: how large features are
            "labels": st.dictionaries(place, st.integers(-1, 2), max_size=3),
            "gone": st.sets(place, max_size=2),
            "restore": st.booleans(),
        }
    ),
    min_size=1,
    max_size=6,
)


class Followed:
    """A graph with embeddings, codes and shapes, and a shadow to which every move is held."""

    def __init__(self, topology: Any, *, undirected: bool) -> None:
        self.undirected = undirected
        self.graph = GrowingGraph(num_features=2, undirected=undirected)
        self.live = LiveEmbeddings(topology, self.graph, scaling="none")
        self.codes = LiveCodes(self.graph, width=WIDTH)
        self.codes.name(NAMES)
        self.shape = LiveShape(self.graph)
        self.labels: dict[int, int] = {}
        self.shadows = [torch.zeros(0, piece.width) for piece in self.pieces]
        self.draw = torch.Generator().manual_seed(0)

    @property
    def pieces(self) -> list[Piece]:
        return [*self.live.pieces, *self.codes.pieces, *self.shape.pieces]

    def follow(self, change: GraphChange, told: dict[int, int]) -> None:
        self.labels = {n: c for n, c in (self.labels | told).items() if c >= 0}
        nodes, classes = torch.tensor([*told]).long(), torch.tensor([*told.values()]).long()
        moved = self.live.update(change)
        assert set(change.new.tolist()) <= set(moved.tolist())
        felt = [piece.changed.pop() for piece in self.live.pieces]
        assert set(torch.cat(felt).tolist()) == set(moved.tolist())
        felt += [self.codes.update(change, nodes, classes), self.shape.update(change)]
        for number, (piece, moved) in enumerate(zip(self.pieces, felt, strict=True)):
            shadow, every = self.shadows[number], np.arange(self.graph.num_nodes)
            more = torch.zeros(self.graph.num_nodes - len(shadow), shadow.shape[1])
            shadow = torch.cat([shadow, more])
            shadow[moved] = torch.from_numpy(piece.rows(moved.numpy()))
            shadow[change.removed] = 0
            assert torch.from_numpy(piece.rows(every)).equal(shadow)  # nobody else moved
            self.shadows[number] = shadow

    def step(self, step: dict[str, Any]) -> None:
        """Add, weigh, cut and renew as one change; then tell labels; then remove."""
        graph, count = self.graph, step["new"]
        known = graph.alive.nonzero().flatten().tolist()
        known += range(graph.num_nodes, graph.num_nodes + count)
        if not known:
            return

        def at(place: int) -> int:
            return int(known[place % len(known)])

        def rows(count: int) -> Tensor:
            return 10.0 ** step["power"] * torch.randn(count, 2, generator=self.draw)

        edges = pairs_of(*((at(a), at(b)) for a, b, _ in step["edges"]))
        weights = torch.tensor([w for *_, w in step["edges"]]) if step["weigh"] else None
        change = graph.add(rows(count), edges, weights)
        every = torch.arange(graph.num_nodes)
        owners = every.repeat_interleave(torch.from_numpy(graph.into.lengths(every.numpy())))
        listed = torch.stack([torch.from_numpy(graph.rows(every)[1]).long(), owners])
        if listed.shape[1]:
            cut = [place % listed.shape[1] for place in step["cut"]]
            change = change.then(graph.disconnect(listed[:, cut]))
        nodes = torch.tensor(sorted({at(place) for place in step["renewed"]}), dtype=torch.int64)
        self.follow(change.then(graph.renew(nodes, rows(len(nodes)))), {})
        self.follow(GraphChange(), {at(place): label for place, label in step["labels"].items()})
        gone = sorted({at(place) for place in step["gone"]})
        if gone:
            hidden = dict.fromkeys(gone, UNLABELLED)
            self.follow(graph.remove(torch.tensor(gone)), hidden)

    def restart(self) -> None:
        """Go on with what states, names and labels tell, which is all there was."""
        parts = (self.graph, self.live, self.codes, self.shape)
        kept = [{name: v.clone() for name, v in part.state().items()} for part in parts]
        other = Followed(self.live.topology, undirected=self.undirected)
        others = (other.graph, other.live, other.codes, other.shape)
        for part, state in zip(others, kept, strict=True):
            part.restore(state)
        nodes, classes = torch.tensor([*self.labels]), torch.tensor([*self.labels.values()])
        other.codes.show(nodes.long(), classes.long())
        self.graph, self.live, self.codes, self.shape = others
        for part, state in zip(others, kept, strict=True):
            assert state.keys() == part.state().keys()
            assert all(value.equal(state[name]) for name, value in part.state().items())


@pytest.mark.parametrize(
    ("kernel", "names"),
    [("torch", sorted(topologies.names())), ("numba", ["sgc", "mixhop"])],
    indirect=["kernel"],
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    steps=steps,
    undirected=st.booleans(),
    hops=st.sampled_from([2, 0, 1, 3]),
    self_loops=st.booleans(),
)
def test_any_history_comes_to_the_final_graph(
    kernel, names, data, steps, undirected, hops, self_loops
):
    """Features that differ by a million: a row is exact beside its own largest value."""
    name = data.draw(st.sampled_from(names))
    topology = topologies.make(name, hops=hops, self_loops=self_loops)
    one = Followed(topology, undirected=undirected)
    for step in steps:
        one.step(step)
        if step["restore"]:
            one.restart()
    positions, codes = codes_from_scratch(one.graph, one.labels)
    if len(positions):
        expected = EmbeddingCache(topology, scaling="none").encode(one.graph.to_graph()[0])
        largest = expected.abs().amax(1, keepdim=True)
        assert bool(((one.live.of(positions) - expected).abs() <= 1e-5 * largest + 1e-6).all())
        torch.testing.assert_close(one.codes.of(positions), codes, atol=1e-5, rtol=0)
        torch.testing.assert_close(one.shape.of(positions), shape_of(one.graph.to_graph()[0]))
