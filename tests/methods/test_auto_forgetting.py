"""What auto forgets it never met, and learners that merge are one that met all."""

import pytest
import torch
from torch import Tensor

from auto_learners import auto, close, final_graph, learned, never_labelled, only, scores_of
from evergraph.core.errors import ConfigurationError
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


# ------------------------------------------------------------------ forgetting


@pytest.mark.parametrize(("weights", "seed"), [("class-sizes", 0), ("equal", 1)])
def test_forgetting_is_never_having_met(weights, seed, whole):
    gone = torch.rand(whole.graph.num_nodes, generator=seeded(seed, "gone")) < 0.3
    learner, never = (auto(ledger=True, weights=weights) for _ in range(2))
    learner.fit_task(whole)
    before = scores_of(learner, whole.graph)
    learner.forget(whole.ids[gone], whole.graph, known_as=whole.ids)
    rest = never_labelled(whole, gone)
    never.fit_task(rest)
    close(scores_of(learner, rest.graph), scores_of(never, rest.graph), 1e-5)
    assert not torch.allclose(scores_of(learner, whole.graph), before, atol=1e-2)
    for name, tensor in never.probes_.state().items():
        assert tensor.equal(learner.probes_.state()[name]), name


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


def test_everything_can_be_forgotten_but_not_what_was_never_met(small_graph):
    task, learner = GraphStream(small_graph).open(0), auto(ledger=True)
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.forget(torch.tensor([0]), task.graph)
    learner.fit_task(task)
    before = scores_of(learner, task.graph)
    with pytest.raises(ConfigurationError, match="node 100000 is missing"):
        learner.forget(torch.tensor([100_000]), task.graph, known_as=task.ids)
    assert scores_of(learner, task.graph).equal(before)
    learner.forget(task.ids, task.graph, known_as=task.ids)
    assert len(learner.probes_) == 0
    assert not scores_of(learner, task.graph).any()
    without = auto()
    without.fit_task(task)
    with pytest.raises(ConfigurationError, match="needs ledger=True"):
        without.forget(torch.tensor([0]), task.graph)


# ------------------------------------------------------------------ merging


@pytest.mark.parametrize("weights", ["class-sizes", "equal"])
def test_learners_of_other_classes_merge(weights, small_graph):
    stream = GraphStream(small_graph, classes_per_task=3, known_labels="everywhere")
    other = GraphStream(small_graph, classes_per_task=3, order=[5, 3, 4, 0, 1, 2])
    ours, theirs = (auto(ledger=True, weights=weights) for _ in range(2))
    ours.fit_task(stream.open(0))
    theirs.fit_task(other.open(0))  # the dataset's 5, 3 and 4 are its 0, 1 and 2
    alone = scores_of(theirs, other.open(0).graph)
    ours.merge(theirs, classes=torch.tensor([5, 3, 4]))
    one = learned(stream, ledger=True, weights=weights)
    for exam in stream.exams(1, "local"):
        close(scores_of(ours, exam.graph), scores_of(one, exam.graph), 1e-4)
    assert ours.classes == one.classes == [0, 1, 2, 3, 4, 5]
    assert ours.usage == one.usage
    assert scores_of(theirs, other.open(0).graph).equal(alone)  # who gave has lost nothing


def test_merged_learners_part_again(small_graph):
    stream = GraphStream(small_graph, classes_per_task=3)
    ours, theirs, alone = (auto(ledger=True) for _ in range(3))
    for learner in (ours, alone):
        learner.fit_task(stream.open(0))
    theirs.fit_task(stream.open(1))
    ours.merge(theirs)
    task = stream.open(1)
    ours.forget(task.ids, task.graph, known_as=task.ids)
    graph = stream.open(0).graph
    found = scores_of(ours, graph)
    assert not found[:, 3:].any()
    close_to_scale(found[:, :3], scores_of(alone, graph), 1e-4)  # half of all is counted out


def test_learners_of_other_features_are_not_merged(small_graph):
    task, learner = GraphStream(small_graph).open(0), auto()
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.merge(auto())
    learner.fit_task(task)
    for other in (auto(seed=1), auto("0", "2"), auto(width=32)):
        other.fit_task(task)
        with pytest.raises(ConfigurationError, match="same views, width and seed"):
            learner.merge(other)
