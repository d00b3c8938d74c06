"""What GEM says it keeps: nodes, and a gradient for every earlier task."""

from __future__ import annotations

from typing import Any

from evergraph.graphs import Graph
from evergraph.memory import SubgraphMemory
from evergraph.nn import PDGNN
from evergraph.streams import GraphStream

Make = Any


def test_a_gradient_a_task_counts_with_the_nodes(make: Make, two_pairs: Graph) -> None:
    memory = SubgraphMemory(budget=2)
    learner = make("gem", memory=memory, backbone=PDGNN(hidden=(3,)))
    assert (learner.usage.gradients, learner.usage.bytes) == (0, 0)
    stream = GraphStream(two_pairs)
    for tasks, classes in ((1, 2), (2, 4)):
        learner.fit_task(stream.open(tasks - 1))
        values = (4 + 1) * 3 + (3 + 1) * classes  # weights and biases of both layers
        nodes = 2 * classes
        assert learner.usage.samples == nodes * 4
        assert learner.usage.edges == memory.usage.edges
        assert learner.usage.gradients == tasks * values
        assert learner.usage.bytes == memory.usage.bytes + 4 * tasks * values
