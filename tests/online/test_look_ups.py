"""Predictions never see half of a delta, look-ups wait for it; and what to ask next."""

import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import small_learner
from evergraph.core.errors import ConfigurationError, UnknownNodeError
from evergraph.online import ContinualNodeClassifier
from evergraph.online.delta import Delta
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.heads import AnalyticHead, FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.view import LearnerView, learner_view
from evergraph.online.view.suggestions import SPREAD, chosen, shares_of
from evergraph.topology import SGC, Reservoir
from growth import growth, restored
from waiting import gated

NODES = 14


def learner(**given: Any) -> OnlineLearner:
    return OnlineLearner(head=FusedHead(width=16), patience=1, tolerance=0.0, **given)


def predictions(view: LearnerView) -> dict[str, Any]:
    """Return all that readers are told while a delta is applied."""
    ids, rest = view.ids_from(0, 100)
    return {
        "ids": (ids, rest),
        "embedded": view.embed(ids).tolist(),
        "predicted": view.predict_proba(ids)[1].tolist(),
        "status": view.status().seq,
    }


def everything(view: LearnerView) -> dict[str, Any]:
    """Return all that look-ups tell."""
    told = predictions(view)
    looked_up = {
        str(n): (view.neighbourhood(n, limit=6), view.explain(n, top=3, limit=6))
        for n in told["ids"][0][::3]
    }
    return told | looked_up | {"suggested": view.suggest(4)}


@pytest.mark.parametrize(
    "given",
    [{"undirected": False}, {"topology": SGC(hops=1), "scaling": "none"}],
    ids=["directed", "one hop"],
)
def test_half_deltas_are_not_seen(given, monkeypatch):
    first, *more = growth(0, 2, each=NODES)  # one delta of each kind
    one = learner(**given)
    view = one.frozen()
    one.apply(first)
    meanwhile = []
    knowledge = one._knowledge
    update_head = knowledge.update_head

    def look_and_settle(**given):
        # Graph, embeddings, labels and codes have changed by now.
        meanwhile.append(predictions(view))
        return update_head(**given)

    monkeypatch.setattr(knowledge, "update_head", look_and_settle)
    for delta in more:
        before = predictions(view)
        meanwhile.clear()
        one.apply(delta)
        assert meanwhile == [before]
    alone = restored(one)  # asked by one thread alone, it reads what there is
    after = everything(view)
    ids = after["ids"][0]
    assert after["embedded"] == one.embed(ids).tolist() == alone.embed(ids).tolist()
    assert after["suggested"] == alone.suggest(4)
    for node in after["ids"][0][::3]:
        around, why = after[str(node)]
        assert around == alone.neighbourhood(node, limit=6)
        assert why == alone.explain(node, top=3, limit=6)


def test_predictions_in_parts_are_of_one_state_whatever_comes(monkeypatch):
    monkeypatch.setattr(learner_view, "NODES_PER_PART", 4)
    first, *more = growth(3, 5, each=NODES)
    one = learner()
    view = one.frozen()
    one.apply(first)
    ids = [*view.ids_from(0, 100)[0], "0.0", "0.1"]  # some of them twice
    before = [*view.answers(ids)]
    parts = view.answers(ids)
    told = [next(parts)]
    for delta in more:
        one.apply(delta)
    assert [*told, *parts] == before
    assert [len(part.predictions) for part in before] == [4, 4, 4, 4]
    assert view.status().seq > before[0].seq
    assert not view._copied._loans  # nothing is saved for readers that are done


def test_predictions_do_not_wait_for_a_delta_and_look_ups_do(monkeypatch):
    one = learner()
    view = one.frozen()
    one.apply(growth(0, 1, each=NODES)[0])
    begun, gate = gated(monkeypatch, one.head, "solve")
    writer = threading.Thread(target=one.apply, args=(Delta(late=(("0.0", "w"),)),))
    writer.start()
    answers = []

    def look():
        with view.reading():
            return view.status().seq, view.suggest(4)

    asks = [lambda: predictions(view), look]
    predicting, looking = (
        threading.Thread(target=lambda ask=ask: answers.append(ask()), daemon=True) for ask in asks
    )
    try:
        assert begun.wait(10)
        predicting.start()
        predicting.join(10)
        looking.start()
        looking.join(0.05)
        assert [answer["status"] for answer in answers] == [1]
    finally:
        gate.set()
        writer.join()
    looking.join(10)
    assert answers[1] == (2, view.suggest(4))


def test_an_f_topo_that_is_not_linear_has_no_voices():
    one = learner(topology=Reservoir())
    one.apply(growth(0, 1, each=NODES)[0])
    told = one.explain("0.0")
    assert told.voices is None
    assert sum(told.probabilities) == pytest.approx(1.0)


def test_a_neighbourhood_has_the_users_names():
    near = small_learner.started().neighbourhood("d")
    assert near.nodes == ("d", "c")
    assert near.labels == (None, "y")
    assert near.edges in (((0, 1),), ((1, 0),))
    assert near.whole


def plain_learner(**parameters) -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=32), **parameters)


def two_stars(labels=(None,) * 6) -> Delta:
    """A centre with three leaves, a, b, c, d, and a pair e - f."""
    return Delta(
        nodes=tuple("abcdef"),
        features=torch.eye(6),
        labels=tuple(labels),
        edges=(("a", "b"), ("a", "c"), ("a", "d"), ("e", "f")),
    )


def test_reach_and_coverage_before_any_label_by_hand():
    model = plain_learner()
    model.apply(two_stars())
    first, second, *rest = model.suggest(6)
    # a has a quarter of its own sum and half of each leaf's: 1/4 + 3/2.
    assert (first.id, first.gain, first.reach) == ("a", 1.75, 3)
    assert (first.uncertainty, first.classes) == (None, ())
    # e and f have half of each other's sums; a leaf has 1/4 · 1/2 + 1/2 · 1/2 left.
    assert (second.id in "ef", second.gain) == (True, 1.0)
    # What is left of the pair after one of them: 1/2 · 1/2 twice.
    assert [found.gain for found in rest if found.id in "ef"] == [0.5]
    assert rest[0].gain == 0.5
    assert rest[1].gain == 0.375
    assert sorted(found.id for found in (first, second, *rest)) == list("abcdef")
    gains = [found.gain for found in (first, second, *rest)]
    assert gains == sorted(gains, reverse=True)


def test_labelled_nodes_are_not_suggested_and_need_no_label_around_them():
    model = plain_learner()
    model.apply(two_stars(["x", None, None, None, "y", None]))
    found = model.suggest(10)
    assert {one.id for one in found} == set("bcdf")
    assert all(0 <= one.uncertainty <= 1 and len(one.classes) == 2 for one in found)
    (only,) = model.suggest(10, among=["a", "c"])
    assert only.id == "c"
    _, shares = model.predict_proba(["c"])
    best = shares[0].sort(descending=True).values.tolist()
    assert only.probabilities == pytest.approx(best[:2])
    assert only.uncertainty == pytest.approx(1 - (best[0] - best[1]), abs=1e-6)
    # Half of its own doubt, and nothing of a, which is known.
    assert only.gain == pytest.approx(only.uncertainty / 2, abs=1e-6)


def test_forgotten_nodes_are_not_suggested():
    model = plain_learner()
    model.apply(two_stars())
    model.apply(Delta(forgotten=("a",)))
    assert {one.id for one in model.suggest(10)} == set("bcdef")
    with pytest.raises(UnknownNodeError):
        model.suggest(1, among=["a"])
    with pytest.raises(ConfigurationError, match="n must be"):
        model.suggest(0)
    assert plain_learner().suggest(1) == ()


def test_several_labels_and_numbers():
    for targets, told in (
        ("labels", [["x"], None, ["x", "y", "z"]]),
        ("numbers", [1.0, None, 2.0]),
    ):
        model = ContinualNodeClassifier(width=32, targets=targets)
        model.partial_fit(["a", "b", "c"], torch.eye(3), told, [("a", "b"), ("b", "c")])
        (found,) = model.suggest(3)
        assert (found.id, found.reach) == ("b", 2)
        assert (found.uncertainty is None) == (targets == "numbers")
        assert len(found.classes) == (0 if targets == "numbers" else 2)  # the likeliest


def greedy(shares, candidates, doubts, count):
    """Choose as the formula says, looking at everything every time."""
    left, found = doubts.copy(), []
    for _ in range(min(count, len(candidates))):
        gains = {v: float(shares[v] @ left) for v in candidates if v not in dict(found)}
        best = min(gains, key=lambda v: (-round(gains[v], 9), int(v) * SPREAD % 2**32))
        found.append((int(best), gains[best]))
        left = left * (1 - np.where(shares[best] > 0, np.maximum(shares[best], 0.5), 0))
    return found


@given(st.data(), st.integers(2, 10))
def test_the_lazy_choice_is_the_greedy_one(data, nodes):
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, nodes - 1)] * 2), min_size=1))
    # Odd fractions: equal gains are then equal nodes, and no rounding decides between them.
    doubts = np.array(data.draw(st.lists(st.floats(0.01, 1), min_size=nodes, max_size=nodes)))
    known = np.array(data.draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)))
    graph = GrowingGraph(num_features=1)
    graph.add(torch.zeros(nodes, 1), torch.tensor(pairs).t())
    shares, candidates = shares_of(graph), np.flatnonzero(~known)
    assert shares.sum(0) == pytest.approx(1)
    asked = []

    def ask(positions):
        asked.extend(positions.tolist())
        return doubts[positions]

    found = chosen(shares, candidates, ask, 4, known=known)
    doubts_left = np.where(known, 0, doubts)
    expected = greedy(shares.toarray(), candidates, doubts_left, 4)
    assert [gain for _, gain in found] == pytest.approx([gain for _, gain in expected])
    assert len(set(asked)) == len(asked)  # each doubt is asked for once
    assert not set(asked) & set(np.flatnonzero(known).tolist())


def test_few_doubts_are_asked_for_where_few_nodes_may_be_chosen(monkeypatch):
    monkeypatch.setattr("evergraph.online.view.suggestions.CANDIDATES_PER_BLOCK", 1)
    graph = GrowingGraph(num_features=1)
    leaves = torch.arange(1, 21)
    edges = torch.stack([torch.zeros(20).long(), leaves])
    graph.add(torch.zeros(61, 1), torch.cat([edges, torch.stack([leaves + 20, leaves + 40])], 1))
    asked = []

    def ask(positions):
        asked.extend(positions.tolist())
        return np.full(len(positions), 0.5)

    ((node, gain),) = chosen(shares_of(graph), np.arange(61), ask, 1, known=np.zeros(61, bool))
    assert (node, gain) == (0, pytest.approx(0.5 * (1 / 21 + 10)))
    assert sorted(asked) == list(range(21))  # nothing of the pairs
