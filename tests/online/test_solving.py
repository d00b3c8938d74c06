"""Scores follow what was counted: at once where it matters, else when enough has come together."""

from __future__ import annotations

import pytest
import torch

from evergraph.online import learned_nodes
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead
from evergraph.online.learned_nodes import Solving
from evergraph.online.learner import OnlineLearner

HEADS = {"analytic": AnalyticHead, "auto": FusedHead}


def test_when_scores_are_due() -> None:
    one = Solving(patience=3)
    assert one.due(1, known=learned_nodes.SMALL - 1)  # few are known
    known = 16_000
    assert [one.due(600, known=known) for _ in range(2)] == [False, True]  # 1,000 are a sixteenth
    assert [one.due(1, known=known) for _ in range(3)] == [False, False, True]
    assert [one.due(n, known=known) for n in (1, 0, 0)] == [False, False, True]  # it has waited
    assert one.due(1, known=known, urgent=True)
    assert not one.behind


@pytest.fixture(params=HEADS)
def learner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OnlineLearner:
    """Twelve nodes in two classes; so few would be solved for at once."""
    monkeypatch.setattr(learned_nodes, "SMALL", 0)
    monkeypatch.setattr(learned_nodes, "SHARE", 1.0)
    one = OnlineLearner(head=HEADS[request.param](width=16), patience=3)
    one.apply(
        Delta(
            nodes=list(range(12)),
            features=torch.randn(12, 3, generator=torch.Generator().manual_seed(0)),
            labels=["x", "y"] * 5 + [None] * 2,
            edges=[(i, i + 1) for i in range(11)],
        )
    )
    return one


def solved(one: OnlineLearner, delta: Delta) -> int:
    one.apply(delta)
    return one.status().solved


def test_labels_of_known_classes_wait_for_each_other(learner: OnlineLearner) -> None:
    assert learner.status().solved == 1
    before = learner.head.scorer()
    ids, vectors = torch.arange(4), torch.randn(4, learner.taken([0])[2].shape[1])
    assert solved(learner, Delta(late=((10, "x"),))) == 1
    assert learner.head.scorer()(ids, vectors).equal(before(ids, vectors))
    assert solved(learner, Delta()) == 1  # waits on
    assert solved(learner, Delta()) == 4  # the third change since
    assert learner.head.scorer()(ids, vectors).ne(before(ids, vectors)).any()
    assert solved(learner, Delta()) == 5  # nothing is waiting


@pytest.mark.parametrize(
    "delta",
    [
        Delta(late=((11, "z"),)),  # a class that is new
        Delta(late=((0, "y"),)),  # a label that was wrong
        Delta(forgotten=(3,)),
        Delta(forgotten=(11,)),  # it had no label, but neighbours
    ],
)
def test_what_cannot_wait_is_solved_at_once(learner: OnlineLearner, delta: Delta) -> None:
    learner.apply(Delta(late=((10, "x"),)))
    assert solved(learner, delta) == 3


def test_predictions_look_at_nodes_as_they_are(learner: OnlineLearner) -> None:
    before = learner.predict_proba([11])[1]
    learner.apply(Delta(edges=((11, 0),), late=((10, "x"),)))
    assert learner.status().solved == 1
    assert learner.predict_proba([11])[1].ne(before).any()


def test_a_number_that_is_new_is_no_new_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_nodes, "SMALL", 0)
    monkeypatch.setattr(learned_nodes, "SHARE", 1.0)
    one = OnlineLearner(head=TargetHead(kind="numbers", width=8), patience=2)
    one.apply(Delta(nodes=(1, 2, 3), features=torch.eye(3), labels=(0.5, 1.5, None)))
    twin = OnlineLearner.from_parameters(one.parameters)
    assert solved(one, Delta(late=((3, 2.5),))) == 1
    twin.restore({name: value.clone() for name, value in one.state().items()}, one.about())
    assert [solved(each, Delta()) for each in (one, twin)] == [3, 3]
    assert one.predict_proba([1, 3])[1].equal(twin.predict_proba([1, 3])[1])
