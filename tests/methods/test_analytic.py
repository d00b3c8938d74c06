"""A learner in closed form: whatever way its nodes came, went and changed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from auto_learners import only
from evergraph.closed_form import ClassStatistics
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.methods import Analytic, analytic
from evergraph.nn import RandomFeatures, random_features
from evergraph.nn.random_features import Expansion
from evergraph.streams import GraphStream, Task
from evergraph.training import Trainer

every_weights = pytest.mark.parametrize("weights", ["equal", "class-sizes"])


def learner_of(*, width: int = 24, seed: int = 0, **options: Any) -> Analytic:
    options.setdefault("backbone", RandomFeatures(width=width))
    return Analytic(trainer=Trainer(device="cpu"), generator=seeded(seed, "learner"), **options)


def random_graph(seed: int, nodes: int = 36, classes: int = 4) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % classes
    return Graph.from_edges(
        torch.randint(nodes, (2, 2 * nodes), generator=generator),
        features=torch.randn(nodes, 4, generator=generator) + torch.eye(4)[labels],
        labels=labels,
        undirected=True,
    )


def task_of(seed: int) -> Task:
    """All of a small graph in one task."""
    return GraphStream(random_graph(seed), classes_per_task=4).open(0)


def assert_same(
    one: ClassStatistics,
    other: ClassStatistics,
    tolerance: float = 1e-6,
    *,
    before: ClassStatistics | None = None,
) -> None:
    """The same to rounding, of what is there or of what was there before some was counted out."""
    assert one.counts_.equal(other.counts_)
    for name in ("gram_", "sums_", "mass_"):
        a, b, whole = (getattr(s, name) for s in (one, other, before or other))
        a, b, whole = (t.tril() if name == "gram_" else t for t in (a, b, whole))
        assert float((a - b).norm()) <= tolerance * float(whole.norm()), name


def learned(stream: GraphStream, **options: Any) -> Analytic:
    learner = learner_of(**options)
    for task in stream:
        learner.fit_task(task)
    return learner


def weights_of(learner: Analytic) -> Tensor:
    learner.solve()
    return learner.backbone.head.weight.data


def test_a_node_weighs_one_over_the_size_of_its_class(small_graph):
    stream = GraphStream(small_graph)
    task = stream.open(0)
    for weights, expected in (("equal", 1.0), ("class-sizes", 1 / task.known_sizes[1])):
        learner = learner_of(weights=weights, ledger=True)
        learner.fit_task(task)
        entries = learner.ledger_.part("train")
        assert entries.ids.equal(task.ids[task.train])
        assert entries.labels.equal(task.train_labels)
        found = entries.weights[task.train_labels == 1]
        torch.testing.assert_close(found, torch.full_like(found, expected))


def test_nodes_are_expanded_a_few_at_a_time(small_graph, monkeypatch):
    stream = GraphStream(small_graph, edges="all")
    whole = learned(stream, refresh="embeddings")
    monkeypatch.setattr(random_features, "BLOCK_VALUES", 7 * 24)  # seven rows of 24 features
    expanded, expand = [], Expansion.__call__
    monkeypatch.setattr(
        Expansion, "__call__", lambda s, rows: (expanded.append(len(rows)), expand(s, rows))[1]
    )
    parts = learned(stream, refresh="embeddings")
    assert_same(parts.statistics_, whole.statistics_, 1e-5)
    assert_same(parts.validation_, whole.validation_, 1e-5)
    for learner in (parts, whole):
        learner.forget(torch.arange(0, 360, 3), stream.union_graph(2))
    assert max(expanded) == 7
    assert_same(parts.statistics_, whole.statistics_, 1e-5)


@every_weights
def test_tasks_one_by_one_give_the_head_of_one_pass(weights, small_graph):
    stream = GraphStream(small_graph)
    learner, joint = learned(stream, weights=weights), learner_of(weights=weights)
    joint.fit_task(stream.open(2, cumulative=True))
    assert_same(learner.statistics_, joint.statistics_)
    assert learner.regularisation_ == joint.regularisation_
    torch.testing.assert_close(weights_of(learner), weights_of(joint), atol=1e-3, rtol=1e-3)


# ------------------------------------------------------------------ a graph that grows


def path_in_tasks() -> Graph:
    """0 - 1 - ... - 59, ten nodes a class, so that three tasks of twenty lie end to end."""
    nodes = torch.arange(60)
    return Graph.from_edges(
        torch.stack([nodes[:-1], nodes[1:]]),
        features=torch.randn(60, 4, generator=seeded(0, "features")),
        labels=nodes // 10,
        undirected=True,
    )


def from_scratch(stream: GraphStream, **options: Any) -> Analytic:
    learner = learner_of(**options)
    learner.fit_task(stream.open(len(stream) - 1, cumulative=True))
    return learner


@every_weights
def test_refreshed_statistics_are_of_the_final_graph(weights, small_graph):
    stream = GraphStream(small_graph, edges="all")
    expected = from_scratch(stream, weights=weights)
    refreshed = learned(stream, weights=weights, refresh="embeddings")
    assert_same(refreshed.statistics_, expected.statistics_, 1e-5)
    assert_same(refreshed.validation_, expected.validation_, 1e-5)
    stale = learned(stream, weights=weights)
    with pytest.raises(AssertionError):
        assert_same(stale.statistics_, expected.statistics_, 1e-2)


def test_only_the_border_is_computed_anew():
    stream = GraphStream(path_in_tasks(), edges="all")
    learner = learned(stream, refresh="embeddings")
    # When 20 arrives, 19 gets another degree, and 17 and 18 look at it from two hops; so at 40.
    assert learner.growing_.recomputed == 6
    assert learner.growing_.unchanged == 17 + 37
    assert_same(learner.statistics_, from_scratch(stream).statistics_, 1e-5)


def test_forgetting_follows_what_was_refreshed():
    stream = GraphStream(path_in_tasks(), edges="all")
    learner = learned(stream, refresh="embeddings")
    gone = torch.arange(15, 45)
    learner.forget(gone, stream.union_graph(2))
    task = stream.open(2, cumulative=True)
    never = learner_of()
    never.fit_task(only(task, "train", ~torch.isin(task.train, gone)))
    assert_same(learner.statistics_, never.statistics_, 1e-5)


@pytest.mark.parametrize("options", [{"refresh": "embeddings"}, {"regularisation": 0.1}])
def test_a_restored_learner_goes_on(options, small_graph):
    stream = GraphStream(small_graph, edges="all")
    whole, resumed = learner_of(**options), learner_of(seed=9, **options)
    for index in (0, 1):
        whole.fit_task(stream.open(index))
    state = {name: tensor.clone() for name, tensor in whole.state().items()}
    resumed.restore(state, stream.label_space(1))
    torch.testing.assert_close(weights_of(resumed), weights_of(whole))
    for learner in (whole, resumed):
        learner.fit_task(stream.open(2))
    assert_same(resumed.statistics_, whole.statistics_, 1e-5)
    assert resumed.usage == whole.usage
    assert resumed.ledger_.state().keys() == whole.ledger_.state().keys()


# ------------------------------------------------------------------ solved when somebody asks


def test_heads_are_solved_when_asked(small_graph, monkeypatch):
    solved = []
    solve = analytic.balanced_ridge
    monkeypatch.setattr(
        analytic, "balanced_ridge", lambda s, r: (solved.append(s.num_classes), solve(s, r))[1]
    )
    stream = GraphStream(small_graph)
    learner = learned(stream, ledger=True)
    assert solved == []
    graph = stream.union_graph(2)
    scores = learner.logits(graph, torch.arange(9))
    learner.predict(graph)
    learner.state()
    assert solved == [6]
    learner.forget(torch.arange(9), graph)
    assert solved == [6]
    assert not learner.logits(graph, torch.arange(9)).equal(scores)
    assert solved == [6, 6]


@pytest.mark.parametrize("asked", ["regularisation_", "state", "model", "named_parameters"])
def test_answers_are_of_the_head_of_all_tasks(asked, small_graph):
    stream = GraphStream(small_graph)
    learner, expected = learned(stream), learned(stream)
    expected.solve()
    for one in (learner, expected):
        one.backbone.eval()
    embeddings = learner.backbone.prepare(stream.union_graph(2))
    ways = {
        "regularisation_": lambda one: torch.tensor(one.regularisation_),
        "state": lambda one: one.state()["model.backbone.head.weight"],
        "model": lambda one: one.backbone(embeddings).detach(),
        "named_parameters": lambda one: one.named_parameters()["backbone.head.weight"].data,
    }
    answer = ways[asked](learner)
    assert answer.any()
    assert answer.equal(ways[asked](expected))


def test_validation_nodes_are_expanded_no_wider_than_the_choice_needs(small_graph, monkeypatch):
    monkeypatch.setattr(analytic, "CHOICE_WIDTH", 10)
    widths, whole = [], learned(GraphStream(small_graph))
    expand = Expansion.__call__
    monkeypatch.setattr(
        Expansion, "__call__", lambda s, rows: (widths.append(s.width), expand(s, rows))[1]
    )
    learner = learned(GraphStream(small_graph))
    assert widths == [24, 10] * 3
    assert_same(learner.validation_, whole.validation_)


# ------------------------------------------------------------------ what it holds and says


def test_usage_counts_statistics_and_the_ledger():
    task = task_of(0)
    triangle, sums = 24 * 25 // 2, 4 * 24
    for options, parts in (({"regularisation": 0.1}, 1), ({}, 2)):
        plain, keeping = learner_of(**options), learner_of(ledger=True, **options)
        for learner in (plain, keeping):
            learner.fit_task(task)
            assert learner.usage.statistics == learner.usage.floats == parts * (triangle + sums)
        entries = len(task.train) + (parts == 2) * len(task.validation)
        assert keeping.usage.bytes - plain.usage.bytes == 20 * entries


def test_novelty_is_what_the_best_score_lacks():
    task = task_of(0)
    learner = learner_of()
    learner.fit_task(task)
    nodes = torch.arange(5)
    embeddings = learner.backbone.prepare(task.graph)[:5]
    scores = learner.backbone.expand(embeddings) @ weights_of(learner).t()
    torch.testing.assert_close(learner.novelty(task.graph, nodes), 1 - scores.amax(1))


def test_learners_that_centre_on_their_own_first_graph_are_not_merged(small_graph):
    stream = GraphStream(small_graph)
    learners = []
    for index in (0, 1):
        backbone = RandomFeatures(width=16, centred=True)
        trainer = Trainer(device="cpu")
        learner = Analytic(backbone=backbone, trainer=trainer, generator=seeded(0, "learner"))
        learner.fit_task(stream.open(index))
        learners.append(learner)
    with pytest.raises(ConfigurationError, match="do not centre"):
        learners[0].merge(learners[1])
