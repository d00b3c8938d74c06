"""A count of everything agrees with what was followed by differences, whatever the history."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead, FusedHead, OnlineHead, TargetHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.recount import recount


def grown(
    head: OnlineHead, *, relations: bool = False, weights: bool = False, **made: Any
) -> OnlineLearner:
    """Return a learner whose nodes came, went, moved and were labelled late."""
    rng, generator = random.Random(1), torch.Generator().manual_seed(1)
    learner, ids = OnlineLearner(head=head, **made), []
    for step in range(8):
        new = [f"{step}-{place}" for place in range(3)]
        ids += new
        pairs = [(rng.choice(ids), rng.choice(ids)) for _ in range(6)] + [(new[0], new[1])]
        edges = [pair for pair in pairs if pair[0] != pair[1]]
        learner.apply(
            Delta(
                nodes=tuple(new),
                features=torch.randn(3, 4, generator=generator),
                labels=tuple(_told(head, rng) for _ in new),
                edges=tuple(edges),
                weights=tuple(rng.choice([0.5, 2.0]) for _ in edges) if weights else (),
                relations=tuple(rng.choice("pq") for _ in edges) if relations else (),
            )
        )
        if step % 2:
            learner.apply(Delta(forgotten=(ids.pop(rng.randrange(len(ids))),)))
            row = torch.randn(1, 4, generator=generator)
            learner.apply(Delta(updated=(rng.choice(ids),), updated_features=row))
    return learner


def _told(head: OnlineHead, rng: random.Random) -> Any:
    name = rng.choice(["x", "y", None])
    return (name,) if name is not None and head.kind == "labels" else name


@pytest.mark.parametrize(
    ("head", "made"),
    [
        (FusedHead(width=16, codes=8), {}),
        (FusedHead(width=16, codes=8), {"relations": True}),
        (FusedHead(width=16, codes=8), {"weights": True, "undirected": False}),
        (AnalyticHead(width=16), {"scaling": "none", "tolerance": 0.0, "patience": 1}),
        (TargetHead(kind="labels", width=16), {"weights": True}),
    ],
    ids=["auto", "relations", "directed", "unscaled", "labels"],
)
def test_a_learner_in_order_is_as_counted_and_stays_as_it_is(head: Any, made: Any) -> None:
    learner = grown(head, **made)
    kept = {name: value.clone() for name, value in learner.state().items()}
    assert list(recount(learner)) == list(recount(OnlineLearner())) == []
    assert all(learner.state()[name].equal(value) for name, value in kept.items())
