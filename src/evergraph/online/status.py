"""What a learner knows, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """What a learner knows, in numbers.

    Attributes:
        seq: how many deltas were applied.
        nodes: in the graph now.
        edges: entries of the adjacency: an edge that runs both ways counts twice.
        classes: that have been met.
        labelled: nodes whose class is known.
        features: how wide features are, 0 before the first node.
        memory: bytes of graph, embeddings and head.
        predicted: labels that were predicted before they were learned.
        accuracy: the share of these predictions that was right; None before the first.
        exact_forgetting: whether a forgotten node leaves no trace.
    """

    seq: int
    nodes: int
    edges: int
    classes: int
    labelled: int
    features: int
    memory: int
    predicted: int
    accuracy: float | None
    exact_forgetting: bool
