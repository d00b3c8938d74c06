"""Every method that keeps a ledger: what it forgets it never met, and two that merge are one."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from auto_learners import VIEWS, never_labelled, only, scores_of
from evergraph.closed_form import ViewFeatures
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.methods import methods
from evergraph.nn import RandomFeatures, UntrainedGCN
from evergraph.streams import GraphStream, Task
from evergraph.training import Trainer

SMALL = {
    "analytic": partial(RandomFeatures, width=24),
    "auto": partial(ViewFeatures, views=VIEWS, width=48, code_width=16),
    "ocgl": partial(UntrainedGCN, dims=8),
}
DRAW_NOTHING = {"ocgl", "slda"}  # features are the same whatever the seed
NAMES = [name for name in methods.names() if "ledger" in methods.parameters(name)]
every_method = pytest.mark.parametrize("name", NAMES)
every_weights = pytest.mark.parametrize("weights", ["equal", "class-sizes"])


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("synthetic", nodes=180, classes=6, features=16, noise=0.4, seed=1)


@pytest.fixture(scope="module")
def halves(graph: Graph) -> GraphStream:
    """Two tasks of three classes each, whose training labels stay known."""
    return GraphStream(graph, classes_per_task=3, known_labels="everywhere")


@pytest.fixture(scope="module")
def whole(graph: Graph) -> Task:
    """All classes in one task."""
    return GraphStream(graph, classes_per_task=6).open(0)


def made(name: str, *, seed: int = 0, **options: Any) -> Any:
    if name in SMALL:
        options.setdefault("backbone", SMALL[name]())
    trainer = Trainer(device="cpu")
    return methods.make(name, trainer=trainer, generator=seeded(seed, "learner"), **options)


def learned(name: str, tasks: Iterable[Task], **options: Any) -> Any:
    learner = made(name, **options)
    for task in tasks:
        learner.fit_task(task)
    return learner


def of_nodes(task: Task, some: Tensor) -> Task:
    """Return the task as one who learns from some of its nodes alone meets it."""
    return only(only(task, "train", some[task.train]), "validation", some[task.validation])


def kept(learner: Any) -> dict[str, Tensor]:
    """Return what it keeps of single nodes."""
    return {k: v for k, v in learner.state().items() if k.startswith(("ledger", "probes"))}


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    """To rounding of the largest: sums that were added are counted out again."""
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


@every_weights
@every_method
def test_what_is_forgotten_was_never_met(name, weights, whole):
    learner = learned(name, [whole], ledger=True, weights=weights)
    before = scores_of(learner, whole.graph)
    gone = torch.rand(whole.graph.num_nodes, generator=seeded(0, "gone")) < 0.3
    learner.forget(whole.ids[gone], whole.graph, known_as=whole.ids)
    rest = never_labelled(whole, gone)
    never = learned(name, [rest], ledger=True, weights=weights)
    close(scores_of(learner, rest.graph), scores_of(never, rest.graph))
    assert kept(learner).keys() == kept(never).keys() != set()
    for key, tensor in kept(never).items():
        assert tensor.equal(kept(learner)[key]), key
    assert learner.usage == never.usage
    with pytest.raises(AssertionError):
        close(scores_of(learner, whole.graph), before, 1e-2)


@pytest.fixture(scope="module")
def other(graph: Graph) -> GraphStream:
    """The halves in another order: its classes 0, 1 and 2 are the dataset's 5, 3 and 4."""
    order = [5, 3, 4, 0, 1, 2]
    return GraphStream(graph, classes_per_task=3, known_labels="everywhere", order=order)


@every_weights
@every_method
def test_learners_of_other_classes_merge(name, weights, halves, other):
    options = {"ledger": True, "weights": weights}
    ours, theirs = (learned(name, [stream.open(0)], **options) for stream in (halves, other))
    alone = scores_of(theirs, other.open(0).graph)
    ours.merge(theirs, classes=torch.tensor([5, 3, 4]))
    one = learned(name, halves, **options)
    for exam in halves.exams(1, "local"):
        close(scores_of(ours, exam.graph), scores_of(one, exam.graph))
    assert ours.classes == one.classes == [0, 1, 2, 3, 4, 5]
    assert ours.usage == one.usage
    assert scores_of(theirs, other.open(0).graph).equal(alone)  # who gave has lost nothing


@every_weights
@every_method
def test_learners_that_met_half_of_the_nodes_merge(name, weights, whole):
    first = torch.rand(whole.graph.num_nodes, generator=seeded(0, "first")) < 0.5
    ours, theirs = (
        learned(name, [of_nodes(whole, part)], weights=weights) for part in (first, ~first)
    )
    ours.merge(theirs)
    one = learned(name, [whole], weights=weights)
    close(scores_of(ours, whole.graph), scores_of(one, whole.graph), 1e-3)


@every_method
def test_merged_learners_part_again(name, halves, other):
    ours, theirs, alone = (
        learned(name, [stream.open(0)], ledger=True) for stream in (halves, other, halves)
    )
    ours.merge(theirs, classes=torch.tensor([5, 3, 4]))
    task = other.open(0)
    ours.forget(task.ids, task.graph, known_as=task.ids)
    graph = halves.open(0).graph
    found, expected = scores_of(ours, graph)[:, :3], scores_of(alone, graph)
    close(found.softmax(1), expected.softmax(1), 1e-3)  # half of all is counted out


@every_method
def test_everything_can_be_forgotten_but_not_what_was_never_met(name, whole):
    learner = made(name, ledger=True)
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.forget(torch.tensor([0]), whole.graph)
    learner.fit_task(whole)
    before, known = scores_of(learner, whole.graph), kept(learner)
    with pytest.raises(ConfigurationError, match="node 100000 is missing"):
        learner.forget(torch.tensor([0, 100_000]), whole.graph, known_as=whole.ids)
    assert scores_of(learner, whole.graph).equal(before)
    assert all(tensor.equal(known[key]) for key, tensor in kept(learner).items())
    learner.forget(whole.ids, whole.graph, known_as=whole.ids)
    assert learner.usage.bytes < learned(name, [whole]).usage.bytes + 1
    with pytest.raises(ConfigurationError, match="needs ledger=True"):
        learned(name, [whole]).forget(torch.tensor([0]), whole.graph)


@every_method
def test_learners_of_other_features_are_not_merged(name, whole):
    learner, fresh = made(name), made(name)
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.merge(fresh)
    learner.fit_task(whole)
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.merge(fresh)
    if name not in DRAW_NOTHING:
        with pytest.raises(ConfigurationError, match=r"the same .*seed"):
            learner.merge(learned(name, [whole], seed=1))
