"""Any history of deltas: the same bits again, only what is left decides, outliers leave nothing."""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead, staleness
from evergraph.online.learner import OnlineLearner
from evergraph.topology import MixHop
from growth import bits, restored
from histories import History, histories

HEADS: dict[str, Callable[..., FusedHead]] = {
    "analytic": AnalyticHead,
    "random": partial(FusedHead, basis="random"),
    "landmarks": FusedHead,
}


@pytest.fixture(params=HEADS)
def learner(request, monkeypatch) -> Callable[..., OnlineLearner]:
    """Makes learners."""
    monkeypatch.setattr(staleness, "SMALL", 0)  # so few would be solved for at once
    monkeypatch.setattr(staleness, "SHARE", 10.0)

    def make(history, tolerance=0.0, patience=1) -> OnlineLearner:
        return OnlineLearner(
            head=HEADS[request.param](width=16),
            undirected=history.undirected,
            tolerance=tolerance,
            patience=patience,
        )

    make.related, make.worded = request.param == "random", request.param == "landmarks"
    return make


def drawn(learner, data) -> History:
    related, worded = (
        may and data.draw(st.booleans()) for may in (learner.related, learner.worded)
    )
    return data.draw(histories(related=related, worded=worded))


fixed = [HealthCheck.function_scoped_fixture]


@settings(max_examples=3, deadline=None, suppress_health_check=fixed)
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


@settings(max_examples=3, deadline=None, suppress_health_check=fixed)
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
    vectors, plain_vectors = (each.frozen().taken(rows)[1] for each in (one, plain))
    assert np.allclose(vectors, plain_vectors, atol=1e-5, rtol=0)  # codes among them
    (names, scores), (plain_names, plain_scores) = (
        each.predict_proba(rows) for each in (one, plain)
    )
    order = [names.index(name) for name in plain_names]
    assert torch.allclose(scores[:, order], plain_scores, atol=1e-5, rtol=0)


NODES = 24
FAR_HEADS = {
    "analytic": lambda: AnalyticHead(width=32),
    "auto": lambda: FusedHead(width=32, codes=4),
    "labels": lambda: TargetHead(width=32),
    "numbers": lambda: TargetHead(kind="numbers", width=32),
}


def made(name):
    topology = MixHop(hops=2, kept_hops=(0, 2)) if name == "auto" else None
    options = {"scaling": "none", "tolerance": 0.0, "patience": 1}
    return OnlineLearner(head=FAR_HEADS[name](), topology=topology, **options)


def told(name, number):
    return {"labels": [number], "numbers": float(number)}.get(name, number)


def crowd(name, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(NODES, 3, generator=generator)
    labels = [told(name, place % 3) for place in range(NODES)]
    edges = torch.randint(NODES, (20, 2), generator=generator).tolist()
    return Delta(nodes=range(NODES), features=features, labels=labels, edges=edges)


def scores(learner, ids):
    positions = learner._ids.positions(ids)
    return learner.head.scores(learner.knowledge.of(positions))


def assert_same(learner, fresh, ids):
    one, other = scores(learner, ids), scores(fresh, ids)
    assert torch.allclose(one, other, rtol=0, atol=1e-5 * max(1.0, float(other.abs().max())))


@given(
    name=st.sampled_from(sorted(FAR_HEADS)),
    power=st.integers(0, 11),
    seed=st.integers(0, 99),
    comes_back=st.booleans(),
)
@settings(max_examples=8)
def test_an_outlier_that_goes_leaves_what_a_fresh_learner_knows(name, power, seed, comes_back):
    learner, fresh, begin = made(name), made(name), crowd(name, seed)
    far = torch.tensor([[1.0, -2.0, 3.0], [2.0, 1.0, -1.0]]) * 10.0**power
    two = {"nodes": ["far", "out"], "labels": [told(name, 0), told(name, 2)]}
    edges = [("far", 0), ("far", 1), ("out", 2)]
    learner.apply(begin)
    learner.apply(Delta(**two, features=far, edges=edges))
    fresh.apply(begin)
    if comes_back:
        near = torch.tensor([[0.5, 1.0, 0.0], [0.0, 0.5, 1.0]])
        learner.apply(Delta(updated=two["nodes"], updated_features=near))
        fresh.apply(Delta(**two, features=near, edges=edges))
    else:
        learner.apply(Delta(forgotten=two["nodes"]))
    assert_same(learner, fresh, list(range(NODES)))


@pytest.mark.parametrize("value", [1e12, 1e200])
def test_a_number_far_out_that_is_forgotten_leaves_nothing(value):
    learner, fresh, begin = made("numbers"), made("numbers"), crowd("numbers", 0)
    learner.apply(begin)
    learner.apply(Delta(nodes=["far"], features=torch.ones(1, 3), labels=[value]))
    learner.apply(Delta(forgotten=["far"]))
    fresh.apply(begin)
    assert_same(learner, fresh, list(range(NODES)))


def test_what_is_counted_anew_is_the_same_when_restored_in_between():
    deltas = [
        crowd("analytic", 1),
        Delta(nodes=["far"], features=torch.full((1, 3), 1e8), labels=[0]),
        Delta(forgotten=["far"]),
    ]
    whole, other = made("analytic"), made("analytic")
    for delta in deltas:
        result = whole.apply(delta)
        other.apply(delta)
        other = restored(other)
    assert result.counted >= NODES  # all were counted again
    assert bits(whole) == bits(other)
    assert whole.apply(Delta()).counted == 0  # once


@given(power=st.integers(0, 6), seed=st.integers(0, 99))
@settings(max_examples=5)
def test_a_column_that_was_large_is_as_exact_as_one_that_never_was(power, seed):
    """Beside one that stays large: what is left of it is no rounding of what it was."""
    learner, fresh, begin = made("labels"), made("labels"), crowd("labels", seed)
    far = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]) * 10.0**power
    two = {"nodes": ["far", "out"], "labels": [None, None]}
    edges = [(node, place) for node in two["nodes"] for place in range(6)]
    hub = [(0, place) for place in range(6, NODES)]  # so many that it is not summed anew
    learner.apply(begin)
    learner.apply(Delta(edges=hub))
    learner.apply(Delta(**two, features=far, edges=edges))
    far[1] = torch.tensor([0.0, 1.0, 0.0])
    learner.apply(Delta(updated=["out"], updated_features=far[1:]))
    fresh.apply(begin)
    fresh.apply(Delta(**two, features=far, edges=hub + edges))
    ids = [*range(NODES), "far", "out"]
    one, other = (each.frozen().embed(ids) for each in (learner, fresh))
    assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
    assert_same(learner, fresh, list(range(NODES)))


def test_sums_of_ordinary_nodes_are_not_counted_anew():
    learner = OnlineLearner(head=AnalyticHead(width=32))
    learner.apply(crowd("analytic", 2))
    assert learner.apply(Delta(forgotten=[0])).counted < NODES / 2
