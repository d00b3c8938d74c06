"""Deltas that change what is there: what is refused, in which order, and what is told of it."""

from __future__ import annotations

import pytest
import torch

from evergraph.core.errors import UnknownEdgeError
from evergraph.online.delta import Delta, is_empty
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.upsert import News
from evergraph.topology import SGC

FIRST = Delta(
    nodes=("a", "b", "c"),
    features=torch.eye(3),
    labels=("x", None, "y"),
    edges=(("a", "b"), ("b", "c")),
)
ROW = torch.tensor([[0.0, 0.0, 5.0]])


def small(*, undirected: bool = True) -> OnlineLearner:
    learner = OnlineLearner(
        head=AnalyticHead(width=32), topology=SGC(hops=1), undirected=undirected
    )
    learner.apply(FIRST)
    return learner


def edges_of(learner: OnlineLearner) -> set[tuple[str, str, float]]:
    """Return the edges around b, which are all, with their weights."""
    around = learner.neighbourhood("b", hops=2)
    weights = around.weights or [1.0] * len(around.edges)
    ends = ([around.nodes[place] for place in edge] for edge in around.edges)
    return {(*sorted(edge), weight) for edge, weight in zip(ends, weights, strict=True)}


def test_an_arrow_goes_one_way() -> None:
    learner = small(undirected=False)
    with pytest.raises(UnknownEdgeError, match="removed edge 0 joins 'b' and 'a'"):
        learner.apply(Delta(removed_edges=(("b", "a"),)))
    learner.apply(Delta(removed_edges=(("a", "b"),)))
    assert learner.status().edges == 1


def test_arrows_there_and_back_are_two_from_the_first_delta_on() -> None:
    learner = OnlineLearner(head=AnalyticHead(width=32), undirected=False)
    arrows = (("a", "b"), ("b", "a"))
    delta, news = learner.only_new(Delta(nodes=("a", "b"), features=torch.eye(2), edges=arrows))
    assert (delta.edges, news.new_edges) == (list(arrows), 2)
    with pytest.raises(UnknownEdgeError, match="removed edge 0 joins 'b' and 'a'"):
        learner.apply(
            Delta(
                nodes=("a", "b"), features=torch.eye(2), edges=arrows[:1], removed_edges=arrows[1:]
            )
        )


def test_parts_are_taken_in_their_order() -> None:
    """Edges come before they go, a label is learned with the features that are told with it."""
    learner = small()
    learner.apply(
        Delta(
            nodes=("d",),
            features=ROW,
            edges=(("d", "b"), ("a", "b"), ("a", "d"), ("b", "d")),
            weights=(1.0, 3.0, 2.0, 4.0),
            removed_edges=(("d", "a"), ("c", "b")),
            updated=("c",),
            updated_features=ROW,
            late=(("b", "z"),),
            forgotten=("c",),
        )
    )
    assert edges_of(learner) == {("a", "b", 3.0), ("b", "d", 4.0)}
    plain = OnlineLearner(head=AnalyticHead(width=32), topology=SGC(hops=1))
    plain.apply(
        Delta(
            nodes=("a", "b", "d"),
            features=torch.cat([torch.eye(3)[:2], ROW]),
            labels=("x", "z", None),
            edges=(("a", "b"), ("b", "d")),
            weights=(3.0, 4.0),
        )
    )
    assert learner.embed(["a", "b", "d"]).equal(plain.embed(["a", "b", "d"]))
    names, shares = learner.predict_proba(["a", "b", "d"])
    order = [names.index(name) for name in plain.classes]
    assert torch.allclose(shares[:, order], plain.predict_proba(["a", "b", "d"])[1], atol=1e-5)


def test_an_edge_keeps_its_weight_until_it_is_given_another() -> None:
    learner = small()
    learner.apply(Delta(edges=(("a", "b"), ("b", "c")), weights=(2.0, 0.5)))
    learner.apply(Delta(edges=(("b", "a"), ("a", "c"))))
    assert edges_of(learner) == {("a", "b", 2.0), ("b", "c", 0.5), ("a", "c", 1.0)}
    learner.apply(Delta(edges=(("b", "a"), ("c", "b")), weights=(0, 1)))
    assert edges_of(learner) == {("b", "c", 1.0), ("a", "c", 1.0)}


def test_an_explanation_speaks_with_the_weights_of_edges() -> None:
    """b gathers with 4 from a and 1 from c; rows sum up to 5, 6 and 2 with the loops."""
    learner = small()
    learner.apply(Delta(edges=(("a", "b"),), weights=(4.0,)))
    told = learner.explain("b")
    weights = {voice.node: voice.weight for voice in told.voices}
    assert weights == pytest.approx({"a": 4 / 30**0.5, "b": 1 / 6, "c": 1 / 12**0.5})
    assert told.rest == pytest.approx([0.0] * len(told.rest), abs=1e-5)


def test_what_is_new_of_changes_by_hand() -> None:
    learner = small()
    given = Delta(
        edges=(("b", "a"), ("b", "c"), ("a", "c"), ("c", "a"), ("a", "a"), ("b", "b")),
        weights=(1, 2, 5, 0, 1, 0),  # as known; another; none after all; loops
        removed_edges=(("a", "b"), ("b", "a"), ("a", "nobody")),
        updated=("a", "b", "nobody"),
        updated_features=torch.cat([ROW, torch.eye(3)[1:2], ROW]),  # b's as known
        late=(("nobody", "x"), ("b", "x")),
    )
    delta, news = learner.only_new(given)
    assert (delta.edges, delta.weights) == ([("b", "c")], [2])
    assert (delta.removed_edges, delta.updated) == ([("b", "a")], ["a"])
    assert (delta.late, delta.updated_features.tolist()) == ([("b", "x")], ROW.tolist())
    assert news == News(
        known_edges=4,  # the first, which goes; the doubled one once; two loops
        changed_weights=1,
        removed_edges=1,
        missing_edges=3,
        new_labels=1,
        updated_nodes=1,
        missing_nodes=1,
    )
    learner.apply(delta)
    assert is_empty(learner.only_new(given)[0])
