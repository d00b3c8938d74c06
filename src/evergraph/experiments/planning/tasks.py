"""The graphs that a stream cuts out of a whole one, by their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evergraph.experiments.planning.graph_facts import GraphFacts
from evergraph.streams.class_order import arrange_classes, group_classes
from evergraph.streams.splits import SHARES


@dataclass(frozen=True)
class Cut:
    """A subgraph induced by some classes.

    Attributes:
        nodes: how many.
        looked_at: entries that their rows have in the whole graph.
        entries: those of them that stay.
    """

    nodes: int
    looked_at: int
    entries: int

    @property
    def training(self) -> int:
        """How many nodes are for training."""
        return round(SHARES[0] * self.nodes)

    @property
    def validation(self) -> int:
        """How many nodes are for validation."""
        return round(SHARES[1] * self.nodes)

    @property
    def tested(self) -> int:
        """How many nodes are tested on."""
        return round(SHARES[2] * self.nodes)


@dataclass(frozen=True)
class TaskCuts:
    """One task: the graph of its own nodes, that of everything seen by then, and its classes."""

    own: Cut
    seen: Cut
    classes: int


def task_cuts(facts: GraphFacts, *, classes_per_task: int = 2) -> list[TaskCuts]:
    """Return the cuts of every task of a stream by class.

    Nodes have the mean degree. Of their entries, the share h (homophily) leads to their own class,
    the rest anywhere, each class met by its size: the other end is among classes S of n_S nodes
    with the chance h + (1 - h) n_S / n, both times as many of the nodes as have a class.

    >>> halves = GraphFacts("g", 100, 1000, 8, (20, 20, 30, 30), homophily=0.5)
    >>> [(t.own.entries, t.seen.entries) for t in task_cuts(halves)]
    [(280, 280), (480, 1000)]
    """
    sizes = facts.class_sizes
    order = arrange_classes(torch.tensor(sizes))
    cuts: list[TaskCuts] = []
    met: list[int] = []
    for classes in group_classes(order, classes_per_task):
        met += classes
        own, seen = (_cut(facts, [sizes[c] for c in some]) for some in (classes, met))
        cuts.append(TaskCuts(own, seen, len(met)))
    return cuts


def _cut(facts: GraphFacts, sizes: Sequence[int]) -> Cut:
    nodes = sum(sizes)
    share = nodes / max(facts.nodes, 1)
    looked_at = round(facts.entries * share)
    known = facts.labelled / max(facts.nodes, 1)
    inside = facts.homophily * known + (1 - facts.homophily) * share
    return Cut(nodes, looked_at, round(looked_at * inside))
