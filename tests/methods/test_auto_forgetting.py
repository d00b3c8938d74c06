"""What auto forgets of graphs: of one task, refreshed, and as neighbours saw it."""

import pytest
import torch
from torch import Tensor

from auto_learners import auto, close, final_graph, learned, never_labelled, only, scores_of
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.streams import GraphStream, Task


@pytest.fixture(scope="module")
def whole(small_graph: Graph) -> Task:
    """A task of all classes at once."""
    return GraphStream(small_graph, classes_per_task=6).open(0)


def close_to_scale(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """For what was counted out in float32: to rounding of the largest score, not of each."""
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())
    torch.testing.assert_close(found.softmax(1), expected.softmax(1), atol=tolerance, rtol=0)


@pytest.mark.parametrize("forgotten", [0, 1])
def test_forgetting_in_a_graph_of_one_task(forgotten, small_graph):
    """The learned nodes of the other task are not there to be counted again."""
    stream = GraphStream(small_graph, classes_per_task=3)
    learner, never, task = learned(stream, ledger=True), auto(ledger=True), stream.open(forgotten)
    gone = torch.rand(task.graph.num_nodes, generator=seeded(task.index)) < 0.25
    learner.forget(task.ids[gone], task.graph, known_as=task.ids)

    def without(index):
        there = stream.open(index)
        return never_labelled(there, gone) if index == forgotten else there

    for index in range(2):
        never.fit_task(without(index))
    for index in range(2):
        graph = without(index).graph
        for seen in (graph, graph.structure):
            close_to_scale(scores_of(learner, seen), scores_of(never, seen), 1e-5)


def test_what_was_refreshed_is_forgotten_as_it_is_now(small_graph, whole):
    stream = GraphStream(small_graph, edges="all")
    learner, never, graph = learned(stream, refresh="embeddings"), auto(), final_graph(stream)
    gone = torch.arange(graph.num_nodes) % 4 == 0
    learner.forget(gone.nonzero().flatten(), graph)
    rest = never_labelled(whole, gone)
    never.fit_task(rest)
    close(scores_of(learner, rest.graph), scores_of(never, rest.graph), 1e-5)


def test_a_label_forgotten_leaves_the_codes_of_its_neighbours(whole):
    """With a head on class codes alone: nobody sees the class of who was forgotten."""
    learner, never, plain = auto("y", "2", ledger=True), auto("y", "2"), auto("y", "2")
    learner.fit_task(whole)
    before = learner.engine_.sums_[0].gram_.tril()
    gone = torch.zeros(whole.graph.num_nodes, dtype=torch.bool)
    gone[whole.train[:1]] = True
    learner.forget(whole.ids[gone], whole.graph, known_as=whole.ids)
    never.fit_task(never_labelled(whole, gone))
    left = learner.engine_.sums_[0].gram_.tril()
    close(left, never.engine_.sums_[0].gram_.tril(), 1e-6)
    # as much as the node's own part, and what its neighbours saw of it
    plain.fit_task(only(whole, "train", ~gone[whole.train]))
    for other in (before, left):
        assert not torch.allclose(plain.engine_.sums_[0].gram_.tril(), other, atol=1e-5)
