"""What makes ``tem`` what it is, and what would be lost without it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.core.seeding import seeded
from evergraph.evaluation import average_accuracy, average_forgetting
from evergraph.evaluation.evaluator import AccuracyMatrix, matrix_of
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph
from evergraph.memory import EmbeddingMemory, coverage_ratio
from evergraph.memory.samplers import (
    DistributionMatchingSampler,
    MeanFeatureSampler,
    UniformSampler,
)
from evergraph.methods import TEM, methods
from evergraph.methods.examples import make_examples
from evergraph.methods.refresh import GrowingEmbeddings
from evergraph.nn import PDGNN, masked_cross_entropy
from evergraph.streams import GraphStream
from evergraph.topology import SGC, EmbeddingCache
from evergraph.training import Learner, Trainer


def learned(learner: Learner, graph: Graph, **stream: Any) -> AccuracyMatrix:
    reports = learn_stream(learner, GraphStream(graph, **stream), testings=["local"])
    return matrix_of([report.rows["local"]["balanced"] for report in reports])


def make(name: str = "tem", **options: Any) -> Learner:
    trainer = Trainer(epochs=10, batch_size=64, device="cpu")
    return methods.make(name, trainer=trainer, generator=seeded(0, "learner"), **options)


def test_replay_prevents_what_finetune_forgets(small_graph):
    forgets, remembers = learned(make("finetune"), small_graph), learned(make(), small_graph)
    assert average_accuracy(forgets) < 0.4  # only the last of three tasks is left
    assert average_forgetting(forgets) < -0.8
    assert average_accuracy(remembers) > 0.85


TARGETS = torch.tensor([2, 2, 2, 3, 0, 1, 1])  # four current, three stored


def loss_of(setting: Any, weighting: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the loss of two tasks of two classes, and the scores that it is of."""
    logits = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    examples = make_examples(
        logits,
        None,
        TARGETS,
        label_space=LabelSpace(setting, (2, 2)),
        stored=3,
        weighting=weighting,
        **options,
    )
    loss = masked_cross_entropy(
        logits,
        TARGETS,
        weights=examples.weights,
        allowed=examples.allowed,
        offsets=examples.offsets,
    )
    return loss, logits


def test_the_class_il_loss_is_weighted_cross_entropy_over_current_and_stored():
    ours, logits = loss_of("class-il", "class-balanced")
    sizes = torch.tensor([1.0, 2.0, 3.0, 1.0])  # n_c on the concatenation
    torch.testing.assert_close(ours, cross_entropy(logits, TARGETS, weight=1 / sizes))


@pytest.mark.parametrize("weighting", ["class-balanced", "current-balanced"])
def test_the_task_il_loss_is_a_sum_of_terms_one_a_task(weighting):
    """The released code weighs stored nodes alike."""
    ours, logits = loss_of("task-il", weighting)
    current = cross_entropy(logits[:4, 2:], TARGETS[:4] - 2, weight=1 / torch.tensor([3.0, 1.0]))
    sizes = torch.tensor([1.0, 2.0] if weighting == "class-balanced" else [1.0, 1.0])
    old = cross_entropy(logits[4:, :2], TARGETS[4:], weight=1 / sizes)
    torch.testing.assert_close(ours, current + old)


def test_the_plain_loss_weighs_stored_nodes_by_lambda():
    ours, logits = loss_of("class-il", "plain", replay_weight=5.0)
    each = cross_entropy(logits, TARGETS, reduction="none")
    torch.testing.assert_close(ours, (each[:4].sum() + 5.0 * each[4:].sum()) / 7)


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_the_adjusted_loss_adds_the_log_of_each_classs_share(setting):
    ours, logits = loss_of(setting, "logit-adjusted")
    if setting == "class-il":
        shares = torch.tensor([1, 2, 3, 1]) / 7
        expected = cross_entropy(logits + shares.log(), TARGETS)
    else:  # a mean for each task, shares within it
        old, new = torch.tensor([1, 2]) / 3, torch.tensor([3, 1]) / 4
        expected = cross_entropy(logits[:4, 2:] + new.log(), TARGETS[:4] - 2)
        expected = expected + cross_entropy(logits[4:, :2] + old.log(), TARGETS[4:])
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("store", ["after", "before"])
def test_memory_keeps_the_budget_and_its_coverage(store, small_graph):
    memory = EmbeddingMemory(budget=3, sampler=UniformSampler())
    learner = make(memory=memory, store=store)
    stream = GraphStream(small_graph)
    task = stream.open(0)
    learner.fit_task(task)
    assert torch.bincount(memory.labels_).tolist() == [3, 3]
    graph, places = task.graph, torch.searchsorted(task.ids, memory.nodes_)
    assert learner.coverage_ratio == pytest.approx(coverage_ratio(graph, places, hops=2))
    kept = learner.backbone.prepare(graph)[places]
    assert memory.embeddings_.equal(kept)
    learner.fit_task(stream.open(1))
    assert torch.bincount(memory.labels_).tolist() == [3, 3, 3, 3]
    assert learner.usage.floats == 12 * small_graph.num_features


def test_storing_before_a_task_counts_its_stored_nodes_twice(small_graph):
    stream = GraphStream(small_graph)
    counts = {}
    for store in ("after", "before"):
        learner = make(memory=EmbeddingMemory(budget=3), store=store)
        counts[store] = learner.begin_task(stream.open(0))
    assert counts["before"] == counts["after"] + 6


def test_storing_only_trains_on_the_memory_alone(small_graph):
    stream = GraphStream(small_graph)
    learner = make(memory=EmbeddingMemory(budget=3), store="only")
    assert learner.begin_task(stream.open(0)) == 6  # three of each of two classes
    examples = learner._examples
    assert examples.inputs.equal(learner.memory.embeddings_)
    assert examples.targets.equal(learner.memory.labels_)
    learner.end_task(stream.open(0))
    assert len(learner.memory) == 6  # and nothing is stored a second time
    assert learner.begin_task(stream.open(1)) == 12


def test_training_on_the_memory_alone_needs_one():
    with pytest.raises(ConfigurationError, match="budget must be above 0 with store 'only'"):
        make(store="only", memory=EmbeddingMemory(budget=0))


def test_a_task_may_reach_the_memory_in_batches(small_graph):
    memory = EmbeddingMemory(budget=5)
    learner = make(memory=memory, arrivals=4)
    learner.fit_task(GraphStream(small_graph).open(0))
    assert torch.bincount(memory.labels_).tolist() == [5, 5]
    whole = make(memory=EmbeddingMemory(budget=5, sampler=MeanFeatureSampler()), arrivals=4)
    with pytest.raises(ConfigurationError, match="second batch"):
        whole.fit_task(GraphStream(small_graph).open(0))


def test_batches_of_a_task_are_drawn_at_random(small_graph):
    """Training nodes stand in order of their numbers; what came in that order would be no draw."""
    batches = []

    class Watched(EmbeddingMemory):
        def store(self, candidates, sizes, *, generator):
            batches.append(candidates.nodes.tolist())
            super().store(candidates, sizes, generator=generator)

    task = GraphStream(small_graph).open(0)
    make(memory=Watched(budget=5), arrivals=4).fit_task(task)
    assert len(batches) == 4
    arrived = [node for batch in batches for node in batch]
    assert sorted(arrived) == task.train.tolist()
    places = torch.tensor(arrived).argsort().argsort().double()
    order = torch.arange(len(arrived)).double()
    assert abs(float(torch.corrcoef(torch.stack([places, order]))[0, 1])) < 0.5


def refreshing(graph: Graph, refresh: str, **stream: Any) -> tuple[TEM, GraphStream]:
    tasks = GraphStream(graph, edges="all", **stream)
    learner = make(memory=EmbeddingMemory(budget=8), refresh=refresh)
    for task in tasks:
        learner.fit_task(task)
    return learner, tasks


@pytest.mark.parametrize("by", ["class", "blurred"])
def test_refreshed_embeddings_are_those_of_the_final_graph(by, small_graph):
    learner, stream = refreshing(small_graph, "embeddings", by=by)
    memory = learner.memory
    final = stream.open(2)
    from_scratch = learner.backbone.embeddings.encode(stream.union_graph(2))
    expected = from_scratch[torch.searchsorted(final.ids, memory.nodes_)]
    torch.testing.assert_close(memory.embeddings_, expected, atol=1e-5, rtol=1e-4)
    assert learner.growing_.recomputed > 0
    assert torch.bincount(memory.labels_).tolist() == [8] * 6


def test_embeddings_of_other_nodes_are_not_reused(small_graph):
    """Two streams with as many nodes a task, but other ones: only ids tell them apart."""
    first = GraphStream(small_graph, edges="all")
    other = GraphStream(small_graph, edges="all", order=[2, 3, 4, 5, 0, 1])
    backbone, growing = PDGNN(), GrowingEmbeddings()
    assert growing.update(first.open(0), backbone) is None
    old = other.open(0).ids
    assert len(first.open(0).ids) == len(old)
    task = other.open(1)
    grown = growing.update(task, backbone)
    growth, before = grown
    torch.testing.assert_close(growth.embeddings, backbone.embeddings.encode(task.graph))
    places = torch.searchsorted(task.ids, old)
    expected = backbone.embeddings.encode(task.graph.subgraph(places))
    torch.testing.assert_close(before[places], expected)


def test_without_refresh_stored_embeddings_stay_as_they_were(small_graph):
    stale, stream = refreshing(small_graph, "none")
    refreshed, _ = refreshing(small_graph, "embeddings")
    first = stale.memory.labels_ < 2  # of task 0
    assert stale.memory.nodes_.equal(refreshed.memory.nodes_)
    task = stream.open(0)
    as_stored = EmbeddingCache(SGC()).encode(task.graph)
    places = torch.searchsorted(task.ids, stale.memory.nodes_[first])
    torch.testing.assert_close(stale.memory.embeddings_[first], as_stored[places])
    gap = (stale.memory.embeddings_ - refreshed.memory.embeddings_)[first].norm(dim=1)
    assert float(gap.max()) > 0.01  # edges to later tasks have moved some


def test_what_cannot_be_refreshed_is_refused(small_graph):
    memory = EmbeddingMemory(sampler=DistributionMatchingSampler())
    with pytest.raises(ConfigurationError, match="stores synthetic vectors: use another"):
        make(memory=memory, refresh="embeddings")
    learner, stream = make(refresh="embeddings"), GraphStream(small_graph, edges="within")
    learner.fit_task(stream.open(0))
    with pytest.raises(ConfigurationError, match="edges must be 'all', not 'within'"):
        learner.fit_task(stream.open(1))


def in_memory_only(**options: Any) -> TEM:
    sampler = DistributionMatchingSampler(features=8, steps=5)
    learner = make(memory=EmbeddingMemory(budget=4, sampler=sampler), store="only", **options)
    return learner


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_sure_nodes_are_condensed_with_their_given_class(setting, small_graph):
    stream = GraphStream(small_graph, setting=setting)
    learner = in_memory_only(pseudo_labels=0.6)
    learner.fit_task(stream.open(0))
    task = stream.open(1)
    seen = []
    store = learner.memory.store

    def watched(candidates, *rest, **options):
        seen.append((candidates.nodes.tolist(), candidates.labels.tolist()))
        store(candidates, *rest, **options)

    learner.memory.store = watched
    learner.fit_task(task)
    (first, _), (second, labels) = seen  # condensed twice, the second time with more nodes
    assert first == task.train.tolist()
    added, given = second[len(first) :], labels[len(first) :]
    assert len(added) > 10
    assert not set(added) & set(first)
    assert set(added) <= set(task.own.tolist())
    right = small_graph.labels[task.ids[torch.tensor(added)]]
    assert float((right == torch.tensor(given)).float().mean()) > 0.9
    assert len(learner.memory) == 16  # four a class: the first round's vectors are gone


def test_labels_of_nodes_that_are_asked_about_are_never_looked_at(small_graph):
    stream = GraphStream(small_graph)
    held = torch.cat([torch.cat([s.validation, s.test]) for s in stream.splits])
    tampered = GraphStream(small_graph)
    tampered._labels[held] ^= 1  # the other class of the task
    for store in ("after", "only"):
        told = []
        for each in (stream, tampered):
            learner = in_memory_only(pseudo_labels=0.6, restart=True)
            learner.store = store
            for index in range(2):
                learner.fit_task(each.open(index))
            told.append(learner.memory.embeddings_)
        assert told[0].equal(told[1])


def test_a_model_that_restarts_forgets_where_it_was(small_graph):
    stream = GraphStream(small_graph)
    carried, anew = in_memory_only(), in_memory_only(restart=True)
    for learner in (carried, anew):
        learner.fit_task(stream.open(0))
    first = {name: p.detach().clone() for name, p in anew.named_parameters().items()}
    steps = anew.trainer.moments_["backbone.head.out.weight.step"].clone()
    for learner in (carried, anew):
        learner.trainer.epochs = 1
        learner.fit_task(stream.open(1))
    name = "backbone.head.hidden.0.weight"
    near = (carried.named_parameters()[name] - first[name]).abs().max()
    far = (anew.named_parameters()[name] - first[name]).abs().max()
    assert near.item() < 0.1 < far.item()  # a step moves a weight by about the rate, 0.005
    assert anew.trainer.moments_["backbone.head.out.weight.step"] < steps


def test_pseudo_labels_need_a_learner_that_knows_the_task():
    with pytest.raises(ConfigurationError, match="pseudo_labels needs a learner trained"):
        make(pseudo_labels=0.9, store="before")
