"""Codes that follow a graph and its labels are those computed from scratch, own labels unseen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassCodes
from evergraph.closed_form.codes import class_codes
from evergraph.graphs import UNLABELLED
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_codes import LiveCodes

WIDTH = 8
NAMES = [3, 1, 2]  # of the classes 0, 1 and 2
NOBODY = torch.empty(0, dtype=torch.int64)


def pairs_of(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def begun(*, undirected: bool = True) -> tuple[GrowingGraph, LiveCodes]:
    codes = LiveCodes(width=WIDTH)
    codes.name(NAMES)
    return GrowingGraph(num_features=1, undirected=undirected), codes


def path(nodes: int, labels: dict[int, int]) -> tuple[GrowingGraph, LiveCodes]:
    graph, codes = begun()
    edges = pairs_of(*((v, v + 1) for v in range(nodes - 1)))
    change = graph.add(torch.zeros(nodes, 1), edges)
    codes.update(graph, change, torch.tensor([*labels]), torch.tensor([*labels.values()]))
    return graph, codes


def from_scratch(graph: GrowingGraph, labels: dict[int, int]) -> tuple[Tensor, Tensor]:
    whole, positions = graph.to_graph()
    names = [NAMES[labels[p]] if p in labels else UNLABELLED for p in positions.tolist()]
    encoder = ClassCodes(width=WIDTH)
    return positions, encoder.scaled(encoder.encode(whole.showing(torch.tensor(names))))


def test_near_and_far_by_hand() -> None:
    """0 - 1 - 2 - 3 with 0 of class 0 and 2 of class 1."""
    _, codes = path(4, {0: 0, 2: 1})
    first, second = class_codes(NAMES[:2], width=WIDTH)
    near, far = codes.of(torch.tensor([1]))[0].split(WIDTH)
    mixed = first / 2**0.5 + second / 2  # N_10 = 1/√2, N_12 = 1/2
    torch.testing.assert_close(near, mixed / mixed.norm())
    assert not far.any()  # nothing with a label is two hops away
    near, far = codes.of(torch.tensor([0]))[0].split(WIDTH)
    assert not near.any()
    torch.testing.assert_close(far, second)  # its own code, which comes back to it, is not there


@pytest.mark.parametrize("leaves", [2, 3, 5, 19, 50])
def test_rounding_leaves_nothing_of_a_nodes_own_label(leaves: int) -> None:
    """Were it only subtracted, its last digits would be scaled to unit length: a whole label."""
    graph, codes = begun()
    change = graph.add(torch.zeros(leaves + 1, 1), pairs_of(*((0, v + 1) for v in range(leaves))))
    codes.update(graph, change, torch.tensor([1]), torch.tensor([0]))
    assert not codes.of(torch.tensor([1])).any()
    assert codes.of(torch.tensor([2]))[0, WIDTH:].norm() == pytest.approx(1.0)
    positions, expected = from_scratch(graph, {1: 0})
    torch.testing.assert_close(codes.of(positions), expected)


def test_a_label_moves_what_is_within_two_hops_and_nobody_else() -> None:
    graph, codes = path(9, {0: 0, 8: 1})
    moved = codes.update(graph, GraphChange(), torch.tensor([4]), torch.tensor([2]))
    assert moved.nodes.tolist() == [2, 3, 4, 5, 6]
    assert moved.after.equal(codes.of(moved.nodes))
    back = codes.update(graph, GraphChange(), torch.tensor([4]), torch.tensor([UNLABELLED]))
    torch.testing.assert_close(back.after, moved.before, atol=1e-6, rtol=0)


def test_the_code_of_a_class_does_not_depend_on_when_it_came() -> None:
    other = LiveCodes(width=WIDTH)
    other.name(NAMES[::-1])
    _, codes = begun()
    every = torch.arange(3)
    assert other.codes(every).equal(codes.codes(every.flip(0)))
    assert not codes.codes(torch.tensor([UNLABELLED])).any()


steps = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=10),
        st.dictionaries(st.integers(0, 60), st.integers(-1, 2), max_size=4),
        st.sets(st.integers(0, 60), max_size=2),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def reach(graph: GrowingGraph, seeds: Tensor) -> set[int]:
    return set(graph.gatherers(graph.gatherers(seeds.unique())).tolist())


class Followed:
    """A graph and codes with a shadow of both, to which every move is held."""

    def __init__(self, *, undirected: bool) -> None:
        self.graph, self.codes = begun(undirected=undirected)
        self.labels: dict[int, int] = {}
        self.shadow = torch.zeros(0, 2 * WIDTH)

    def follow(self, change: GraphChange, told: dict[int, int]) -> None:
        self.labels = {n: c for n, c in (self.labels | told).items() if c >= 0}
        nodes, classes = torch.tensor([*told]).long(), torch.tensor([*told.values()]).long()
        moved = self.codes.update(self.graph, change, nodes, classes)
        more = self.graph.num_nodes - len(self.shadow)
        self.shadow = torch.cat([self.shadow, torch.zeros(more, 2 * WIDTH)])
        assert moved.before.equal(self.shadow[moved.nodes])
        self.shadow[moved.nodes], self.shadow[change.removed] = moved.after, 0
        assert self.codes.of(torch.arange(self.graph.num_nodes)).equal(self.shadow)
        felt = torch.cat([change.new, change.touched, nodes[self.graph.alive[nodes]]])
        far = ~torch.isin(moved.nodes, torch.tensor([*reach(self.graph, felt)]))
        # Sums that are taken anew now and then move what is farther off by its rounding alone.
        torch.testing.assert_close(moved.after[far], moved.before[far], atol=1e-6, rtol=0)

    def step(self, step: tuple[int, Any, Any, Any, bool]) -> None:
        count, drawn, named, gone, _ = step
        known = self.graph.alive.nonzero().flatten().tolist()
        known += range(self.graph.num_nodes, self.graph.num_nodes + count)
        if not known:
            return
        edges = pairs_of(*((known[a % len(known)], known[b % len(known)]) for a, b in drawn))
        told = {known[node % len(known)]: label for node, label in named.items()}
        self.follow(self.graph.add(torch.zeros(count, 1), edges), {})
        self.follow(GraphChange(), told)
        if gone:
            leave = sorted({known[node % len(known)] for node in gone})
            hidden = dict.fromkeys(leave, UNLABELLED)
            self.follow(self.graph.remove(torch.tensor(leave)), hidden)

    def restarted(self) -> None:
        """Go on with what state, names and labels tell."""
        kept, table = self.codes.state(), self.labels
        self.codes = LiveCodes(width=WIDTH)
        self.codes.restore(kept)
        self.codes.name(NAMES)
        self.codes.show(torch.tensor([*table]).long(), torch.tensor([*table.values()]).long())


@settings(max_examples=30)
@given(steps=steps, undirected=st.booleans())
def test_after_any_steps_codes_are_those_from_scratch(steps: list[Any], undirected: bool) -> None:
    one = Followed(undirected=undirected)
    for step in steps:
        one.step(step)
        if step[-1]:
            one.restarted()
    positions, expected = from_scratch(one.graph, one.labels)
    if len(positions):
        torch.testing.assert_close(one.codes.of(positions), expected, atol=1e-5, rtol=0)
