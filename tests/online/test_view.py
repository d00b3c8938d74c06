"""What readers are shown: whole deltas, explanations and neighbourhoods."""

from __future__ import annotations

import threading

import pytest
import torch

from evergraph.core.errors import (
    UnknownNodeError,
)
from evergraph.online.delta import Delta
from evergraph.topology import Reservoir
from small_learner import X, first, learner, started


def test_an_explanation_adds_up():
    one = started()
    one.apply(Delta(nodes=("e",), features=X[:1], labels=("z",), edges=(("e", "a"), ("e", "c"))))
    told = one.explain("a", top=3)
    assert told.label == "x"
    assert told.classes[0] == one.predict(["a"])[0]
    assert told.voices is not None
    assert {voice.node for voice in told.voices} == {"a", "b", "c", "e"}  # d is three hops away
    for place, score in enumerate(told.scores):
        total = sum(voice.says[place] for voice in told.voices)
        assert total == pytest.approx(score, abs=1e-4)
        assert told.others[place] == 0
        assert told.rest[place] == pytest.approx(0, abs=1e-4)
    short = one.explain("a", top=1, limit=1)
    assert short.voices is not None
    assert len(short.voices) == 1
    assert short.voices[0].says[0] + short.others[0] == pytest.approx(short.scores[0], abs=1e-4)


def test_an_f_topo_that_is_not_linear_has_no_voices():
    one = learner(topology=Reservoir())
    one.apply(first())
    told = one.explain("a")
    assert told.voices is None
    assert sum(told.probabilities) == pytest.approx(1.0)


def test_a_neighbourhood_has_the_users_names():
    near = started().neighbourhood("d")
    assert near.nodes == ("d", "c")
    assert near.labels == (None, "y")
    assert near.edges in (((0, 1),), ((1, 0),))
    assert near.whole


def test_a_shared_view_sees_whole_deltas_only():
    """Readers ask while nodes come and go in pairs: they see both or none, never a torn answer."""
    one = learner()
    view = one.frozen()
    one.apply(first())
    torn: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                pair = view.predict_proba(["left", "right"])[1]
            except UnknownNodeError:
                continue
            if not pair[0].equal(pair[1]):  # twins: same features, same neighbours
                torn.append(pair)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(15):
        one.apply(
            Delta(
                nodes=("left", "right"),
                features=torch.ones(2, 4),
                labels=("x", "x"),
                edges=(("left", "a"), ("right", "a")),
            )
        )
        one.apply(Delta(nodes=(), edges=(("left", "c"), ("right", "c"))))
        one.apply(Delta(forgotten=("left", "right")))
    done.set()
    for thread in threads:
        thread.join()
    assert not torn
    assert view.embed(["a", "d"]).equal(one.embed(["a", "d"]))


def test_a_view_shared_before_or_after_shows_the_same():
    early, late = learner(), learner()
    view = early.frozen()
    deltas = [first(), Delta(edges=(("a", "c"),)), Delta(forgotten=("b",))]
    for delta in deltas:
        early.apply(delta)
        late.apply(delta)
    assert view.predict_proba(["a", "d"])[1].equal(late.frozen().predict_proba(["a", "d"])[1])
