"""Places of forgotten nodes go, and all else stays as it was."""

from __future__ import annotations

import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, ReplayHead, TargetHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.pieces import Packing, packed, whole
from growth import growth
from histories import repacked


def path() -> OnlineLearner:
    """a - b - c - d in places 0 to 3, of which b has been forgotten: a, and c - d are left."""
    learner = OnlineLearner(head=AnalyticHead(width=16), scaling="none")
    learner.apply(
        Delta(
            nodes="abcd",
            features=torch.tensor([[1.0], [2.0], [4.0], [8.0]]),
            labels=("x", "y", "x", None),
            edges=(("a", "b"), ("b", "c"), ("c", "d")),
        )
    )
    learner.apply(Delta(forgotten=("b",)))
    return learner


def test_on_a_path_of_four_the_second_place_goes():
    found = path().packed()
    arrays = whole(found.arrays)
    assert found.places == 1
    assert arrays["graph.features"].flatten().tolist() == [1.0, 4.0, 8.0]
    assert arrays["graph.alive"].tolist() == [True] * 3
    assert arrays["graph.indptr"].tolist() == [0, 0, 1, 2]
    assert arrays["graph.indices"].tolist() == [2, 1]  # c and d, which were 2 and 3
    assert arrays["labels.numbers"].tolist() == [0, 0, -1]
    assert arrays["counted.slots"].tolist() == [1, 2, 0]
    assert len(arrays["counted.rows"]) == 2
    assert bytes(arrays["ids.bytes"].numpy()) == b"acd"
    assert arrays["embeddings.state_2"].flatten().tolist() == pytest.approx([1.0, 6.0, 6.0])


def test_a_learner_that_forgot_nobody_or_everybody():
    learner = OnlineLearner(head=AnalyticHead(width=16))
    assert learner.packed() is None
    learner.apply(Delta(nodes="a", features=torch.ones(1, 2)))
    assert learner.packed() is None
    learner = path()
    learner.apply(Delta(forgotten=("a", "c", "d")))
    other = repacked(learner)
    assert (other.every_id(), other.status().features) == ([], 1)
    for each in (learner, other):
        each.apply(Delta(nodes="ef", features=torch.tensor([[1.0], [3.0]]), labels="xy"))
    assert other.predict(["e", "f"]) == learner.predict(["e", "f"])
    assert other.knowledge.graph.num_nodes == 2


@pytest.mark.parametrize(
    ("head", "related"),
    [
        (AnalyticHead(width=32), False),
        (FusedHead(width=32), False),
        (FusedHead(width=32), True),
        (ReplayHead(width=8, epochs=2), False),
        (TargetHead(kind="labels", width=32), False),
    ],
    ids=["analytic", "auto", "relations", "replay", "targets"],
)
def test_every_head_says_the_same_afterwards_and_after_more(head, related):
    learner = OnlineLearner(head=head, undirected=not related)
    *first, last, gone = growth(0, 6, each=5, kind=head.kind, related=related)
    for delta in first:
        learner.apply(delta)
    other, ids = repacked(learner), learner.every_id()
    assert other.every_id() == ids
    assert other.knowledge.graph.num_nodes == len(ids) < learner.knowledge.graph.num_nodes
    assert torch.equal(other.embed(ids), learner.embed(ids))
    assert torch.equal(other.predict_proba(ids)[1], learner.predict_proba(ids)[1])
    for each in (learner, other):
        each.apply(last)
        each.apply(gone)
    ids = learner.every_id()
    close = 1e-2 if head.name == "replay" else 1e-5  # which trains: last digits grow
    assert (other.predict_proba(ids)[1] - learner.predict_proba(ids)[1]).abs().max() < close
    assert other.history()["curve"] == learner.history()["curve"]


def test_who_lists_ids_meanwhile_must_begin_again():
    learner = path()
    assert learner.ids_from(0, 2) == (["a"], 2)
    other = repacked(learner)
    with pytest.raises(DataError, match="start must be 0, not 2: nodes were renumbered"):
        other.ids_from(2, 2)
    assert other.ids_from(0, 2) == (["a", "c"], 6)
    assert other.ids_from(6, 2) == (["d"], None)
    other.apply(Delta(forgotten=("a",)))
    third = repacked(other)
    with pytest.raises(DataError, match="not 6: nodes were renumbered"):
        third.ids_from(6, 2)
    assert third.ids_from(0, 1) == (["c"], 8)


def test_an_array_that_nobody_has_told_of_is_a_mistake():
    with pytest.raises(AssertionError, match=r"graph\.colours must be listed"):
        packed({"graph.colours": torch.zeros(3)}, Packing.of(torch.ones(3, dtype=torch.bool)))
