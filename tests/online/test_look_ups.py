"""Look-ups read what is published: beside a delta that is being learned, and never half of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import small_learner
from evergraph.online.delta import Delta
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.view import LearnerView
from evergraph.topology import SGC, Reservoir

NODES = 14


def learner(**given: Any) -> OnlineLearner:
    return OnlineLearner(head=FusedHead(width=16), patience=1, tolerance=0.0, **given)


def first(generator: np.random.Generator) -> Delta:
    edges = generator.integers(NODES, size=(20, 2)).tolist()
    return Delta(
        nodes=tuple(f"n{i}" for i in range(NODES)),
        features=torch.from_numpy(generator.normal(size=(NODES, 3)).astype(np.float32)),
        labels=tuple("xyz"[i % 3] if i % 4 else None for i in range(NODES)),
        edges=tuple((f"n{a}", f"n{b}") for a, b in edges),
    )


def changes(generator: np.random.Generator, count: int) -> Iterator[Delta]:
    """Deltas of every kind, in turn."""
    known = [f"n{i}" for i in range(NODES)]
    for number in range(count):
        some = [str(node) for node in generator.permutation(known)[:4]]
        new = f"m{number}"
        features = torch.from_numpy(generator.normal(size=(1, 3)).astype(np.float32))
        if number % 4 == 0:
            edges = tuple((new, node) for node in some)
            yield Delta(nodes=(new,), features=features, labels=("x",), edges=edges)
            known.append(new)
        elif number % 4 == 1:
            known.remove(some[0])
            yield Delta(forgotten=(some[0],), late=((some[1], "y"), (some[2], "w")))
        elif number % 4 == 2:
            pairs = ((some[0], some[1]), (some[2], some[3]))
            yield Delta(
                edges=pairs, weights=(2.5, 0.5), updated=(some[1],), updated_features=features
            )
        else:
            yield Delta(edges=((some[0], some[3]),), weights=(0.0,), late=((some[0], "z"),))


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
    generator = np.random.default_rng(0)
    one = learner(**given)
    view = one.frozen()
    one.apply(first(generator))
    meanwhile: list[dict[str, Any]] = []
    knowledge: Any = one._knowledge
    settle = knowledge.settle

    def look_and_settle(**given: bool) -> Any:
        # Graph, embeddings, labels and codes have changed by now.
        meanwhile.append(everything(view))
        return settle(**given)

    monkeypatch.setattr(knowledge, "settle", look_and_settle)
    for delta in changes(generator, 8):
        before = everything(view)
        meanwhile.clear()
        one.apply(delta)
        assert meanwhile == [before]
    alone = learner(**given)  # asked by one thread alone, it reads what there is
    alone.restore({name: part.clone() for name, part in one.state().items()}, one.about())
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
    generator = np.random.default_rng(3)
    one = learner(undirected=undirected)
    view = one.frozen()
    one.apply(first(generator))
    before = everything(view)
    every = torch.arange(NODES)
    with view.pinned() as pinned:
        vectors, features = pinned.vectors(every), pinned.published.graph.features.every()
        for delta in changes(generator, 12):  # enough for lists to be packed anew
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
    one.apply(first(np.random.default_rng(0)))
    begun, gate = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait(20)

    monkeypatch.setattr(one.head, "settle", wait)
    writer = threading.Thread(target=one.apply, args=(Delta(late=(("n0", "y"),)),))
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
    one.apply(first(np.random.default_rng(0)))
    told = one.explain("n0")
    assert told.voices is None
    assert sum(told.probabilities) == pytest.approx(1.0)


def test_a_neighbourhood_has_the_users_names() -> None:
    near = small_learner.started().neighbourhood("d")
    assert near.nodes == ("d", "c")
    assert near.labels == (None, "y")
    assert near.edges in (((0, 1),), ((1, 0),))
    assert near.whole
