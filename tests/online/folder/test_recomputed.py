"""A deep check of learners of every kind: what is in order is, and what is changed is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evergraph.online.delta import Delta
from evergraph.online.folder.checkup import differing
from evergraph.online.heads import TargetHead
from evergraph.online.learner import OnlineLearner

NODES = 16


def grown(label: Any = lambda node: "xy"[node % 2], *, named: bool = False, **parameters: Any):
    """Return a learner of a graph that came in four deltas, of which edges and a node went."""
    learner = OnlineLearner(**parameters)
    rows = torch.randn(NODES, 5, generator=torch.Generator().manual_seed(0))
    for start in range(0, NODES, 4):
        nodes = tuple(range(start, start + 4))
        edges = tuple((node, node * node % (start + 4)) for node in nodes[1:])
        relations = tuple("ab"[node % 2] for node in nodes[1:]) if named else ()
        labels = tuple(label(node) for node in nodes)
        new = {"nodes": nodes, "features": rows[start : start + 4], "labels": labels}
        learner.apply(Delta(**new, edges=edges, relations=relations))
    learner.apply(Delta(removed_edges=((5, 1),)))
    learner.apply(Delta(forgotten=(3,)))
    again = {"updated": (7,), "updated_features": torch.ones(1, 5)}
    learner.apply(Delta(**again, late=((8, label(9)),) if label(9) is not None else ()))
    return learner


LEARNERS = {
    "auto": {},
    "random features": {"head": {"name": "auto", "basis": "random", "width": 16}},
    "analytic": {"head": {"name": "analytic", "width": 16}},
    "numbers": {"label": float, "head": TargetHead(kind="numbers")},
    "labels": {"label": lambda node: ["u", "v"] if node % 3 else ["w"], "targets": "labels"},
    "relations": {"named": True},
    "directed and unscaled": {"undirected": False, "scaling": "none"},
    "another topology": {"topology": {"name": "appnp"}, "head": {"name": "analytic", "width": 16}},
    "nothing": {"label": lambda node: None},
}


@pytest.mark.parametrize("name", LEARNERS)
def test_what_a_learner_keeps_follows_from_graph_and_labels(name):
    assert list(differing(grown(**LEARNERS[name]))) == []
