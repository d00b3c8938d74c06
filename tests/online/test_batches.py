"""Deltas that are applied together: what is the same as one by one, and what is not."""

from __future__ import annotations

import dataclasses
from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead
from evergraph.online.intake import MOST_DELTAS, Batch, merged, owners
from evergraph.online.learner import OnlineLearner
from growth import bits
from histories import histories

PARTS = [field.name for field in dataclasses.fields(Delta)]


def fresh(**given) -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=16), **given)


def node(name: str, *values: float, label: str | None = None, **parts: object) -> Delta:
    return Delta(nodes=(name,), features=torch.tensor([values]), labels=(label,), **parts)


def together(learner: OnlineLearner, deltas: list[Delta]) -> list[list[Delta]]:
    """Return the batches in which a learner takes deltas in, and have it take them."""
    left, found = deque(deltas), []
    while left:
        batch = Batch()
        while left and not batch.full and not (batch.deltas and Batch.is_alone(left[0])):
            checked = learner.check(left[0], batch.ahead)
            if not batch.takes(checked):
                break
            batch.add(checked)
            left.popleft()
        learner.apply_batch(batch.deltas)
        found.append(batch.deltas)
    return found


def test_a_batch_by_hand():
    """a - b - c on a path: b and its edge, then c, then a late label of b, as one change."""
    one = fresh()
    one.apply(node("a", 1.0, 0.0, label="x"))
    results = one.apply_batch(
        [
            node("b", 0.0, 1.0, edges=(("a", "b"),)),
            node("c", 1.0, 1.0, label="y", edges=(("c", "b"),)),
            Delta(late=(("b", "x"),)),
        ]
    )
    assert [(r.seq, r.new_nodes, r.classes) for r in results] == [(2, 1, 2), (3, 1, 2), (4, 0, 2)]
    # Before the batch x was the only class: c was called x, and so was b.
    assert [(r.predicted, r.right) for r in results] == [(0, 0), (1, 0), (1, 1)]
    assert {r.recomputed for r in results} == {3}
    points = [(p["seq"], p["nodes"], p["asked"], p["right"]) for p in one.history()["curve"]]
    assert points == [(3, 3, 1, 0), (4, 3, 1, 1)]
    status = one.status()
    assert (status.seq, status.nodes, status.edges, status.labelled) == (4, 3, 4, 3)


def test_what_is_merged_and_whose_labels_are_whose():
    one = fresh()
    one.apply(node("a", 1.0, label="x"))
    batch = Batch()
    for delta in (
        node("b", 2.0, label="y", edges=(("a", "b"),), weights=(0.5,)),
        Delta(nodes=("c",), features=torch.tensor([[3.0]])),
        node("d", 4.0, label="z", edges=(("c", "d"), ("d", "a")), weights=(2, 3), late=[("c", 7)]),
    ):
        checked = one.check(delta, batch.ahead)
        assert batch.takes(checked)
        batch.add(checked)
    whole = merged(batch.deltas)
    assert (whole.first, whole.nodes, whole.labels) == (1, ["b", "c", "d"], ["y", None, "z"])
    assert whole.ends.tolist() == [[0, 2, 3], [1, 3, 0]]
    assert whole.weighed.tolist() == [0.5, 2, 3]
    assert whole.features.flatten().tolist() == [2, 3, 4]
    assert whole.labelled.tolist() == [2]
    assert owners(batch.deltas).tolist() == [0, 2, 2]  # y, z, then the late 7


APART = {
    "edges go": Delta(removed_edges=(("a", "b"),)),
    "other features": Delta(updated=("a",), updated_features=torch.ones(1, 1)),
    "nodes go": Delta(forgotten=("a",)),
    "a second label": Delta(late=(("b", "z"),)),
    "weights beside none": Delta(edges=(("a", "b"),), weights=(2.0,)),
}


@pytest.mark.parametrize("delta", APART.values(), ids=APART)
def test_what_begins_a_batch_of_its_own(delta):
    one, twin = fresh(), fresh()
    first = node("b", 2.0, label="y", edges=(("a", "b"),))
    for learner in (one, twin):
        learner.apply(node("a", 1.0, label="x"))
    assert [len(batch) for batch in together(one, [first, delta])] == [1, 1]
    twin.apply(first)
    twin.apply(delta)
    assert bits(one) == bits(twin)


def test_what_is_not_of_one_batch_is_not_applied_as_one():
    one, batch = fresh(), Batch()
    one.apply(node("a", 1.0, label="x"))
    before = one.status()
    with pytest.raises(DataError, match="cannot be applied together with those before it"):
        one.apply_batch([Delta(late=(("a", "y"),)), Delta(late=(("a", "z"),))])
    assert one.status() == before
    batch.add(fresh().check(node("a", 1.0)))  # first nodes of two widths are not joined
    assert not batch.takes(fresh().check(node("b", 1.0, 2.0), batch.ahead))
    assert batch.takes(fresh().check(node("b", 1.0), batch.ahead))


def test_a_batch_is_full():
    one, batch = fresh(), Batch()
    for number in range(MOST_DELTAS):
        assert not batch.full
        batch.add(one.check(node(f"{number}", 1.0), batch.ahead))
    assert batch.full
    large = Delta(nodes=tuple(range(4000)), features=torch.ones(4000, 1))
    batch = Batch()
    batch.add(one.check(large))
    edges = tuple((place, place + 1) for place in range(100))
    assert not batch.takes(one.check(Delta(edges=edges), batch.ahead))
    assert batch.takes(one.check(Delta(edges=edges[:96]), batch.ahead))


@settings(max_examples=6)
@given(history=histories(), cuts=st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_any_split_gives_the_same_graph_embeddings_and_counts(history, cuts):
    """One by one, or in pieces of any size, each taken in as few batches as it can be."""
    one, other, again = (fresh(undirected=history.undirected) for _ in range(3))
    for delta in history.deltas:
        one.apply(delta)
    left = list(history.deltas)
    for size in cuts:
        piece, left = left[:size], left[size:]
        for batch in together(other, piece):
            # The same batches, not checked: what a recovery does.
            again.apply_batch([Delta(**{n: getattr(d, n) for n in PARTS}) for d in batch])
    assert not left
    (mine, edges), (theirs, others) = _graph(one), _graph(other)
    assert mine == theirs
    assert edges.equal(others)
    assert bits(other) == bits(again)
    assert other.history() == again.history()
    assert _counts(one) == _counts(other)
    names = one.every_id()
    assert names == other.every_id()
    assert torch.allclose(one.embed(names), other.embed(names), atol=1e-5, rtol=0)


def _graph(learner: OnlineLearner) -> tuple[list[list[int]], torch.Tensor]:
    """Return whom every node gathers from, and with what weights: 1 where none were given."""
    graph = learner._knowledge.graph
    nodes = torch.arange(graph.num_nodes)
    indptr, near = graph.rows(nodes)
    weights = graph.weights(nodes) if graph.weighted else torch.ones(len(near)).numpy()
    return [indptr.tolist(), near.tolist()], torch.from_numpy(weights)


def _counts(learner: OnlineLearner) -> dict[object, int]:
    """Return how many nodes each class has."""
    return dict(zip(learner.classes, learner.knowledge.labels.counts_.tolist(), strict=False))
