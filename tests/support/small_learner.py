"""A learner of four nodes and two classes."""

import torch

from evergraph.online.delta import Delta
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner

X = torch.eye(4)


def learner(**parameters) -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=48), **parameters)


def first() -> Delta:
    """Two pairs: a - b of class x, c - d, of which c is y and d has no label."""
    return Delta(
        nodes=("a", "b", "c", "d"),
        features=X,
        labels=("x", "x", "y", None),
        edges=(("a", "b"), ("c", "d")),
    )


def started() -> OnlineLearner:
    one = learner()
    one.apply(first())
    return one
