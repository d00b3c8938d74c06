"""A method behind a learner: it sees the graph as every delta leaves it."""

from __future__ import annotations

import torch

from evergraph.online.delta import Delta
from evergraph.online.heads import MethodHead
from evergraph.online.learner import OnlineLearner
from evergraph.topology import SGC

NAMES = ("a", "b", "c", "d", "e", "f")


def learner(*, seed: int = 0) -> OnlineLearner:
    """Two groups of three, a third of each without a label, learned with a few epochs."""
    one = OnlineLearner(topology=SGC(hops=1), head=MethodHead(method="joint", epochs=15), seed=seed)
    one.apply(
        Delta(
            nodes=NAMES,
            features=torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3),
            labels=("x", "x", None, "y", "y", None),
            edges=(("a", "b"), ("b", "c"), ("d", "e"), ("e", "f")),
        )
    )
    return one


def newcomer(name: str, at: str) -> Delta:
    """A node that tells nothing by itself: its one neighbour decides."""
    return Delta(nodes=(name,), features=torch.tensor([[0.1, 0.1]]), edges=((name, at),))


def test_nodes_without_labels_are_scored_as_they_come() -> None:
    one = learner()
    assert one.predict(NAMES) == ["x", "x", "x", "y", "y", "y"]
    one.apply(newcomer("g", "d"))
    one.apply(newcomer("h", "a"))
    assert one.predict(["g", "h"]) == ["y", "x"]


def test_an_edge_changes_what_a_method_says() -> None:
    one = learner()
    one.apply(newcomer("g", "a"))
    before = one.predict_proba(["g"])[1]
    one.apply(Delta(edges=(("g", "d"), ("g", "e"), ("g", "f"))))
    after = one.predict_proba(["g"])[1]
    assert float(before[0, 0]) > 0.5 > float(after[0, 0])


def test_a_restored_learner_goes_on_with_the_graph() -> None:
    one = learner()
    twin = OnlineLearner.from_parameters(one.parameters)
    twin.restore({name: value.clone() for name, value in one.state().items()}, one.about())
    assert twin.predict_proba(NAMES)[1].equal(one.predict_proba(NAMES)[1])
    for each in (one, twin):
        each.apply(newcomer("g", "d"))
        each.apply(Delta(late=(("g", "z"),), forgotten=("a",)))
    left = ("b", "c", "d", "e", "f", "g")
    assert twin.predict_proba(left)[1].equal(one.predict_proba(left)[1])
    assert twin.classes == ("x", "y", "z")


def test_a_restored_learner_may_be_told_a_label_and_nothing_else() -> None:
    one = learner()
    twin = OnlineLearner.from_parameters(one.parameters)
    twin.restore({name: value.clone() for name, value in one.state().items()}, one.about())
    for each in (one, twin):
        each.apply(Delta(late=(("c", "z"),)))
    assert twin.predict_proba(NAMES)[1].equal(one.predict_proba(NAMES)[1])


def test_the_seed_decides_how_a_fit_begins() -> None:
    first, same, other = (learner(seed=seed).predict_proba(NAMES)[1] for seed in (0, 0, 1))
    assert first.equal(same)
    assert not first.equal(other)
