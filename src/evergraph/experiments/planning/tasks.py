"""The graphs that a stream cuts out of a whole one, by their sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from evergraph.experiments.planning.graph_facts import GraphFacts
from evergraph.streams.class_order import group_classes
from evergraph.streams.companions import MOST, ROUNDS
from evergraph.streams.splits import LEAST_NODES, SHARES


@dataclass(frozen=True)
class Cut:
    """A subgraph induced by some classes.

    Attributes:
        nodes: how many.
        looked_at: entries that their rows have in the whole graph.
        entries: those of them that stay.
        classified: nodes that have a class.
    """

    nodes: int
    looked_at: int
    entries: int
    classified: int

    @property
    def training(self) -> int:
        """How many nodes are for training."""
        return round(SHARES[0] * self.classified)

    @property
    def validation(self) -> int:
        """How many nodes are for validation."""
        return round(SHARES[1] * self.classified)

    @property
    def tested(self) -> int:
        """How many nodes are tested on."""
        return round(SHARES[2] * self.classified)


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
    with the chance h + (1 - h) n_S / n, both times as many of the nodes as have a class. Where
    most nodes have none, they come along, see ``with_companions``.

    >>> halves = GraphFacts("g", 100, 1000, 8, (20, 20, 30, 30), homophily=0.5)
    >>> [(t.own.entries, t.seen.entries) for t in task_cuts(halves)]
    [(280, 280), (480, 1000)]
    """
    sizes = facts.class_sizes
    without = facts.nodes - facts.labelled
    cut = _cut if without <= MOST * facts.nodes else _cut_along
    cuts: list[TaskCuts] = []
    met: list[int] = []
    large = [c for c, size in enumerate(sizes) if size >= LEAST_NODES]
    for classes in group_classes(large, classes_per_task):
        before = sum(sizes[c] for c in met)
        met += classes
        own = cut(facts, sum(sizes[c] for c in classes), before)
        cuts.append(TaskCuts(own, cut(facts, before + own.classified, 0), len(met)))
    return cuts


def _cut(facts: GraphFacts, classified: int, before: int) -> Cut:
    """Return the subgraph of some nodes with classes."""
    share = classified / max(facts.nodes, 1)
    known = facts.labelled / max(facts.nodes, 1)
    inside = facts.homophily * known + (1 - facts.homophily) * share
    looked_at = round(facts.entries * share)
    return Cut(classified, looked_at, round(looked_at * inside), classified)


def _cut_along(facts: GraphFacts, classified: int, before: int) -> Cut:
    """Return the subgraph of some nodes and of those who come with them, others having come before.

    Of d neighbours at random, none is among a share s of all nodes with the chance exp(-d s).
    """

    def reached(nodes: int) -> float:
        share, degree = nodes / facts.nodes, facts.entries / facts.nodes
        for _ in range(ROUNDS):
            share += (1 - share) * -math.expm1(-degree * share)
        return share

    share = reached(before + classified) - reached(before)
    looked_at = round(facts.entries * share)
    return Cut(round(facts.nodes * share), looked_at, round(looked_at * share), classified)
