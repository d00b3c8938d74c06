"""What is new of edges, found by their positions, is what a loop over them finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.online.delta import Delta
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner

KNOWN, NEW = ("a", "b", 1, 2), ("n", 7)
ENDS = st.sampled_from([*KNOWN, *NEW, "nobody", 99])
PAIRS = st.lists(st.tuples(ENDS, ENDS), max_size=7)


def learner(undirected: bool) -> tuple[OnlineLearner, dict[Any, float]]:
    """Four nodes and three edges, one of them heavier, and what they weigh."""
    weights = {("a", "b"): 1.0, ("b", 1): 2.5, (1, 2): 1.0}
    made = OnlineLearner(head=FusedHead(width=8), undirected=undirected)
    made.apply(
        Delta(nodes=KNOWN, features=torch.eye(4), edges=[*weights], weights=[*weights.values()])
    )
    return made, weights


@given(PAIRS, PAIRS, st.data(), st.booleans())
def test_the_same_as_one_by_one(edges: Any, removed: Any, data: Any, undirected: bool) -> None:
    made, known = learner(undirected)
    weights: Any = ()
    if data.draw(st.booleans()):
        numbers = st.sampled_from([0.0, 1.0, 2.5, 0.1])
        weights = data.draw(st.lists(numbers, min_size=len(edges), max_size=len(edges)))
    given_ = Delta(
        nodes=NEW, features=torch.eye(4)[:2], edges=edges, weights=weights, removed_edges=removed
    )
    reduced, news = made.only_new(given_)

    def name(edge: Any) -> Any:
        return frozenset(edge) if undirected else edge

    there = {name(edge): weight for edge, weight in known.items()}
    cut = {name(edge): edge for edge in removed}
    first: dict[Any, Any] = {}
    found: dict[Any, Any] = {}
    for place, edge in enumerate(edges):
        loop = edge[0] == edge[1] and edge[0] in (*KNOWN, *NEW)
        if not loop and name(edge) not in cut:
            weight = weights[place] if len(weights) else None
            found[first.setdefault(name(edge), edge)] = weight
    was = {edge: there.get(name(edge), 0.0) for edge in found}
    new = {
        edge: weight
        for edge, weight in found.items()
        if (was[edge] == 0 if weight is None else float(np.float32(weight)) != was[edge])
    }
    gone = [edge for key, edge in cut.items() if there.get(key)]
    assert list(reduced.edges) == list(new)
    assert list(reduced.weights) == [weight for weight in new.values() if weight is not None]
    assert list(reduced.removed_edges) == gone
    zero = sum(weight == 0 for weight in new.values())
    absent = sum(weight == 0 and not was[edge] for edge, weight in found.items())
    fresh = sum(not was[edge] for edge in new)
    counts = (news.new_edges, news.known_edges, news.changed_weights)
    assert counts == (fresh, len(edges) - len(new) - absent, len(new) - fresh - zero)
    assert news.removed_edges == zero + len(gone)
    assert news.missing_edges == absent + len(removed) - len(gone)
