"""Look-ups read what is published: beside a delta that is being learned, and never half of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import small_learner
from evergraph.online.delta import Delta
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.view import LearnerView
from evergraph.topology import SGC, Reservoir
from growth import growth, restored
from waiting import gated

NODES = 14


def learner(**given: Any) -> OnlineLearner:
    return OnlineLearner(head=FusedHead(width=16), patience=1, tolerance=0.0, **given)


def everything(view: LearnerView) -> dict[str, Any]:
    """Return all that look-ups tell."""
    ids, rest = view.ids_from(0, 100)
    told = {str(node): view.looked_up(node, top=3, limit=6) for node in ids[::3]}
    return told | {
        "ids": (ids, rest),
        "embedded": view.embed(ids).tolist(),
        "predicted": view.predict_proba(ids)[1].tolist(),
        "suggested": view.suggestions(4),
        "status": view.status().seq,
    }


@pytest.mark.parametrize(
    "given",
    [{"undirected": False}, {"topology": SGC(hops=1), "scaling": "none"}],
    ids=["directed", "one hop"],
)
def test_half_a_delta_is_never_looked_up(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *more = growth(0, 4, each=NODES)
    one = learner(**given)
    view = one.frozen()
    one.apply(first)
    meanwhile: list[dict[str, Any]] = []
    knowledge: Any = one._knowledge
    settle = knowledge.settle

    def look_and_settle(**given: bool) -> Any:
        # Graph, embeddings, labels and codes have changed by now.
        meanwhile.append(everything(view))
        return settle(**given)

    monkeypatch.setattr(knowledge, "settle", look_and_settle)
    for delta in more:
        before = everything(view)
        meanwhile.clear()
        one.apply(delta)
        assert meanwhile == [before]
    alone = restored(one)  # asked by one thread alone, it reads what there is
    after = everything(view)
    ids = after["ids"][0]
    assert after["embedded"] == one.embed(ids).tolist() == alone.embed(ids).tolist()
    assert after["suggested"][1] == alone.suggest(4)
    for node in after["ids"][0][::3]:
        around, why = after[str(node)]
        assert around == alone.neighbourhood(node, limit=6)
        assert why == alone.explain(node, top=3, limit=6)


@pytest.mark.parametrize("undirected", [True, False])
def test_what_is_pinned_stays_whatever_comes(undirected: bool) -> None:
    first, *more = growth(3, 5, each=NODES)
    one = learner(undirected=undirected)
    view = one.frozen()
    one.apply(first)
    before = everything(view)
    every = torch.arange(NODES)
    with view.pinned() as pinned:
        vectors, features = pinned.vectors(every), pinned.published.graph.features.every()
        for delta in more:  # enough for lists to be packed anew
            one.apply(delta)
        assert list(pinned.names(range(NODES))) == before["ids"][0]
        assert pinned.vectors(every).equal(vectors)
        assert (pinned.published.graph.features.every() == features).all()
        assert pinned.published.graph.alive.every().all()
        assert not view.page.publish().graph.alive.every().all()  # some went
        graph = pinned.published.graph
        for place, node in list(enumerate(before["ids"][0]))[::3]:
            near = graph.ego(place, hops=2, limit=6)
            assert (pinned.names(near.nodes.tolist())) == before[node][0].nodes
            told = before[node][0].weights
            assert (None if near.weights is None else tuple(near.weights.tolist())) == told
    assert view._pins == 0


def test_look_ups_do_not_wait_for_a_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    one = learner()
    view = one.frozen()
    one.apply(growth(0, 1, each=NODES)[0])
    begun, gate = gated(monkeypatch, one.head, "settle")
    writer = threading.Thread(target=one.apply, args=(Delta(late=(("0.0", "w"),)),))
    writer.start()
    try:
        assert begun.wait(10)
        found: list[Any] = []
        reader = threading.Thread(target=lambda: found.append(everything(view)), daemon=True)
        reader.start()
        reader.join(10)
        assert [told["status"] for told in found] == [1]
    finally:
        gate.set()
        writer.join()


def test_an_f_topo_that_is_not_linear_has_no_voices() -> None:
    one = learner(topology=Reservoir())
    one.apply(growth(0, 1, each=NODES)[0])
    told = one.explain("0.0")
    assert told.voices is None
    assert sum(told.probabilities) == pytest.approx(1.0)


def test_a_neighbourhood_has_the_users_names() -> None:
    near = small_learner.started().neighbourhood("d")
    assert near.nodes == ("d", "c")
    assert near.labels == (None, "y")
    assert near.edges in (((0, 1),), ((1, 0),))
    assert near.whole
