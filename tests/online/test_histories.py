"""Any history of deltas: the same bits again, and only what is left decides."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evergraph.core.seeding import seeded
from evergraph.online import held_back, learned_nodes
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, OnlineHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.pieces import whole


class Ledger:
    """What is left after deltas, in plain dictionaries: the graph that they come to."""

    def __init__(self, *, undirected: bool) -> None:
        self.undirected = undirected
        self.rows: dict[str, torch.Tensor] = {}
        self.labels: dict[str, object] = {}
        self.edges: dict[tuple[str, ...], float] = {}

    def name(self, edge: tuple[str, str]) -> tuple[str, ...]:
        return tuple(sorted(edge)) if self.undirected else tuple(edge)

    def apply(self, delta: Delta) -> None:
        self.rows |= dict(zip(delta.nodes, delta.features, strict=True))
        self.labels |= dict(zip(delta.nodes, delta.labels, strict=True))
        for place, edge in enumerate(delta.edges):
            name = self.name(edge)
            stays = self.edges.get(name, 1.0)
            self.edges[name] = delta.weights[place] if delta.weights else stays
        self.edges = {k: v for k, v in self.edges.items() if v and k[0] != k[1]}
        for edge in delta.removed_edges:
            del self.edges[self.name(edge)]
        self.rows |= dict(zip(delta.updated, delta.updated_features, strict=True))
        self.labels |= dict(delta.late)
        for node in delta.forgotten:
            del self.rows[node], self.labels[node]
            self.edges = {k: v for k, v in self.edges.items() if node not in k}

    def delta(self) -> Delta:
        """Return all of it at once."""
        return Delta(
            nodes=list(self.rows),
            features=torch.stack(list(self.rows.values())),
            labels=[self.labels[node] for node in self.rows],
            edges=list(self.edges),
            weights=list(self.edges.values()),
        )


@dataclasses.dataclass
class History:
    """Deltas that can be applied one after the other, and what is left after each."""

    undirected: bool
    deltas: list[Delta]
    end: Ledger


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Nodes, edges, weights, edges that go, other features, late labels, nodes that go."""
    ledger = Ledger(undirected=draw(st.booleans()))
    deltas = []
    for step in range(draw(st.integers(1, 5))):
        old = list(ledger.rows)
        new = [f"{step}.{i}" for i in range(draw(st.integers(0 if old else 1, 3)))]
        alive = old + new
        pairs = st.tuples(st.sampled_from(alive), st.sampled_from(alive))
        labels = st.sampled_from(["x", "y", 3, None])
        some = st.lists(st.sampled_from(old), unique=True, max_size=2) if old else st.just([])
        edges, updated, known = draw(st.lists(pairs, max_size=4)), draw(some), [*ledger.edges]
        few = st.lists(st.sampled_from(known), unique=True, max_size=2) if known else st.just([])
        weigh = draw(st.booleans())
        weights = [draw(st.sampled_from([0.0, 0.25, 1.0, 3.0])) for _ in edges] if weigh else []
        named = {ledger.name(edge) for edge in edges}
        delta = Delta(
            nodes=new,
            features=torch.randn(len(new), 3, generator=seeded(step, "features")),
            labels=[draw(labels) for _ in new],
            edges=edges,
            weights=weights,
            removed_edges=[edge for edge in draw(few) if ledger.name(edge) not in named],
            updated=updated,
            updated_features=torch.randn(len(updated), 3, generator=seeded(step, "other")),
            late=[(node, draw(st.sampled_from(["x", "z"]))) for node in draw(some)],
            forgotten=draw(some),
        )
        ledger.apply(delta)
        deltas.append(delta)
    return History(ledger.undirected, deltas, ledger)


HEADS: dict[str, Callable[..., OnlineHead]] = {
    "analytic": AnalyticHead,
    "auto": FusedHead,
    "landmarks": partial(FusedHead, basis="landmarks"),
}


@pytest.fixture(params=HEADS)
def learner(request, monkeypatch) -> Callable[..., OnlineLearner]:
    """Makes learners; classes of two nodes have a say in how views are mixed."""
    monkeypatch.setattr(held_back, "LEAST", 2)
    monkeypatch.setattr(learned_nodes, "SMALL", 0)  # so few would be solved for at once
    monkeypatch.setattr(learned_nodes, "SHARE", 10.0)
    return lambda history, tolerance=0.0, patience=1: OnlineLearner(
        head=HEADS[request.param](width=48),
        undirected=history.undirected,
        tolerance=tolerance,
        patience=patience,
    )


fixed = [HealthCheck.function_scoped_fixture]


@settings(max_examples=15, deadline=None, suppress_health_check=fixed)
@given(history=histories(), data=st.data())
def test_the_same_deltas_give_the_same_bits(learner, history, data):
    """Whatever was asked, saved, restored and shared in between."""
    given = data.draw(st.sampled_from([0.0, 0.3])), data.draw(st.sampled_from([1, 3]))
    one, twin = learner(history, *given), learner(history, *given)
    for delta in history.deltas:
        assert dataclasses.asdict(one.apply(delta)) == dataclasses.asdict(twin.apply(delta))
        if data.draw(st.booleans()):
            state, about = twin.state(), json.loads(json.dumps(twin.about()))
            twin = OnlineLearner.from_parameters(json.loads(json.dumps(twin.parameters)))
            twin.restore({key: value.clone() for key, value in state.items()}, about)
        if data.draw(st.booleans()):
            twin.frozen().status()
    mine, theirs = one.state(), twin.state()
    assert mine.keys() == theirs.keys()
    assert all(mine[key].equal(theirs[key]) for key in mine)
    assert one.history() == twin.history()
    assert one.status() == twin.status()
    assert one.about() == twin.about()


@settings(max_examples=15, deadline=None, suppress_health_check=fixed)
@given(history=histories())
def test_what_is_left_decides(learner, history):
    """After any history all is as in a learner given the end of it at once."""
    one, rows = learner(history), list(history.end.rows)
    for delta in history.deltas:
        one.apply(delta)
    if not any(label is not None for label in history.end.labels.values()):
        return
    plain = learner(history)
    plain.apply(history.end.delta())
    vectors, plain_vectors = (each.frozen().taken(rows)[2] for each in (one, plain))
    torch.testing.assert_close(vectors, plain_vectors, atol=1e-5, rtol=0)  # codes among them
    (names, scores), (plain_names, plain_scores) = (
        each.predict_proba(rows) for each in (one, plain)
    )
    order = [names.index(name) for name in plain_names]
    torch.testing.assert_close(scores[:, order], plain_scores, atol=1e-5, rtol=0)


def repacked(one: OnlineLearner) -> OnlineLearner:
    """Return a learner without places of forgotten nodes, the same one where there are none."""
    found = one.packed()
    if found is None:
        return one
    other = OnlineLearner.from_parameters(json.loads(json.dumps(one.parameters)))
    arrays = {name: value.clone() for name, value in whole(found.arrays).items()}
    other.restore(arrays, json.loads(json.dumps(found.about)))
    return other


@settings(max_examples=10, deadline=None, suppress_health_check=fixed)
@given(history=histories(), data=st.data())
def test_a_learner_that_is_packed_goes_on_as_if_it_were_not(learner, history, data):
    given = data.draw(st.sampled_from([0.0, 0.3])), data.draw(st.sampled_from([1, 3]))
    one, twin = learner(history, *given), learner(history, *given)
    for delta in history.deltas:
        mine, theirs = one.apply(delta), twin.apply(delta)
        assert mine.seq == theirs.seq
        assert mine.classes == theirs.classes
        assert mine.predicted == theirs.predicted
        if data.draw(st.booleans()):
            twin = repacked(twin)
    twin, rows = repacked(twin), list(history.end.rows)
    assert twin.every_id() == one.every_id()
    assert [array for array in twin.knowledge.arrays() if len(array) > len(rows)] == []
    assert twin.knowledge.names == one.knowledge.names
    assert twin.status().labelled == one.status().labelled
    vectors, packed = (each.frozen().taken(rows)[2] for each in (one, twin))
    torch.testing.assert_close(packed, vectors, atol=1e-5, rtol=0)
    if one.status().labelled:
        scores, packed = (each.predict_proba(rows)[1] for each in (one, twin))
        torch.testing.assert_close(packed, scores, atol=1e-5, rtol=0)
