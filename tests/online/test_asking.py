"""Asking about nodes without adding them, and copies of a learner."""

import copy
import pickle

import pytest
import torch

from evergraph.core.errors import DataError, NothingLearnedError
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead
from evergraph.online.learner import OnlineLearner
from growth import bits, growth

HEADS = {
    "auto": lambda: FusedHead(width=16, codes=8),
    "analytic": lambda: AnalyticHead(width=16),
    "labels": lambda: TargetHead(width=16),
    "numbers": lambda: TargetHead(kind="numbers", width=16),
}


def grown(head: str, deltas: list[Delta], **parameters) -> OnlineLearner:
    learner = OnlineLearner(head=HEADS[head](), **parameters)
    for delta in deltas:
        learner.apply(delta)
    return learner


@pytest.mark.parametrize(("head", "related"), [*((head, False) for head in HEADS), ("auto", True)])
def test_an_answer_is_that_of_adding_and_asking_and_nothing_is_written(head, related):
    kind = HEADS[head]().target.name
    deltas = growth(3, 4, kind=kind, related=related)
    learner = grown(head, deltas[:4])
    for delta in (deltas[4], deltas[7]):
        before = bits(learner)
        asked = learner.ask(delta, every_class=True)
        assert bits(learner) == before
        seq = learner.status().seq
        learner.apply(delta)
        added = learner.answer(delta.nodes, every_class=True)
        assert (asked.predictions, asked.classes) == (added.predictions, added.classes)
        assert (asked.seq, added.seq) == (seq, seq + 1)
        for between in deltas[5:7] if delta is deltas[4] else ():
            learner.apply(between)


def test_known_nodes_may_be_asked_about_as_well():
    deltas = growth(1, 3)
    learner = grown("auto", deltas[:-1])
    old = learner.every_id()[:2]
    asked = learner.ask(deltas[-1], old)
    learner.apply(deltas[-1])
    assert asked.predictions == learner.answer(old).predictions


def test_what_cannot_be_added_cannot_be_asked():
    learner = grown("auto", growth(1, 3))
    with pytest.raises(DataError, match="features have 2 columns"):
        learner.ask(Delta(nodes=["new"], features=torch.ones(1, 2)))
    empty = OnlineLearner()
    with pytest.raises(NothingLearnedError):
        empty.ask(Delta(nodes=["new"], features=torch.ones(1, 2)))
    assert empty.status().nodes == 0


def unpickled(learner: OnlineLearner) -> OnlineLearner:
    return pickle.loads(pickle.dumps(learner))  # noqa: S301


@pytest.mark.parametrize("head", HEADS)
def test_a_copy_goes_on_with_the_same_bits_and_leaves_the_original_alone(head):
    deltas = growth(2, 3, kind=HEADS[head]().target.name)
    learner = grown(head, deltas[:4], tolerance=0.1, patience=3)
    before = bits(learner)
    copies = copy.deepcopy(learner), unpickled(learner)
    for copied in copies:
        assert bits(copied) == before
        assert copied.parameters == learner.parameters
        for delta in deltas[4:]:
            copied.apply(delta)
        assert bits(learner) == before
    for delta in deltas[4:]:
        learner.apply(delta)
    assert bits(copies[0]) == bits(copies[1]) == bits(learner)
