"""Any history of deltas: the same bits again, and only what is left decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evergraph.online import learned_nodes
from evergraph.online.heads import AnalyticHead, FusedHead, OnlineHead, TargetHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.recount import recount
from growth import bits, growth, restored
from histories import History, histories

HEADS: dict[str, Callable[..., OnlineHead]] = {
    "analytic": AnalyticHead,
    "auto": FusedHead,
    "landmarks": partial(FusedHead, basis="landmarks"),
}


@pytest.fixture(params=HEADS)
def learner(request, monkeypatch) -> Callable[..., OnlineLearner]:
    """Makes learners; classes of two nodes have a say in how views are mixed."""
    monkeypatch.setattr(learned_nodes, "LEAST", 2)
    monkeypatch.setattr(learned_nodes, "SMALL", 0)  # so few would be solved for at once
    monkeypatch.setattr(learned_nodes, "SHARE", 10.0)

    def make(history, tolerance=0.0, patience=1) -> OnlineLearner:
        return OnlineLearner(
            head=HEADS[request.param](width=16),
            undirected=history.undirected,
            tolerance=tolerance,
            patience=patience,
        )

    make.related = request.param == "auto"
    return make


def drawn(learner, data) -> History:
    return data.draw(histories(related=learner.related and data.draw(st.booleans())))


fixed = [HealthCheck.function_scoped_fixture]


@settings(max_examples=6, deadline=None, suppress_health_check=fixed)
@given(data=st.data())
def test_the_same_deltas_give_the_same_bits(learner, data):
    """Whatever was asked, saved, restored and shared in between."""
    history = drawn(learner, data)
    given = data.draw(st.sampled_from([0.0, 0.3])), data.draw(st.sampled_from([1, 3]))
    one, twin = learner(history, *given), learner(history, *given)
    for delta in history.deltas:
        assert dataclasses.asdict(one.apply(delta)) == dataclasses.asdict(twin.apply(delta))
        if data.draw(st.booleans()):
            twin = restored(twin)
        if data.draw(st.booleans()):
            twin.frozen().status()
    assert bits(one) == bits(twin)
    assert (one.history(), one.status()) == (twin.history(), twin.status())


@settings(max_examples=6, deadline=None, suppress_health_check=fixed)
@given(data=st.data())
def test_what_is_left_decides(learner, data):
    """After any history all is as in a learner given the end of it at once."""
    history = drawn(learner, data)
    one, rows = learner(history), list(history.end.rows)
    for delta in history.deltas:
        one.apply(delta)
    if not any(label is not None for label in history.end.labels.values()):
        return
    plain = learner(history)
    plain.apply(history.end.delta())
    vectors, plain_vectors = (each.frozen().taken(rows)[2] for each in (one, plain))
    assert torch.allclose(vectors, plain_vectors, atol=1e-5, rtol=0)  # codes among them
    (names, scores), (plain_names, plain_scores) = (
        each.predict_proba(rows) for each in (one, plain)
    )
    order = [names.index(name) for name in plain_names]
    assert torch.allclose(scores[:, order], plain_scores, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("head", "made", "drawn"),
    [
        (FusedHead(width=16, codes=8), {}, {}),
        (FusedHead(width=16, codes=8), {}, {"related": True}),
        (FusedHead(width=16, codes=8), {"undirected": False}, {"weighted": True}),
        (AnalyticHead(width=16), {"scaling": "none", "tolerance": 0.0, "patience": 1}, {}),
        (TargetHead(kind="labels", width=16), {}, {"weighted": True}),
    ],
    ids=["auto", "relations", "directed", "unscaled", "labels"],
)
def test_a_count_of_everything_agrees_and_changes_nothing(head, made, drawn):
    one = OnlineLearner(head=head, **made)
    for delta in growth(1, 8, kind=head.kind, **drawn):
        one.apply(delta)
    kept = bits(one)
    assert list(recount(one)) == list(recount(OnlineLearner())) == []
    assert bits(one) == kept
