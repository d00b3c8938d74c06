"""Heads on several views in one mixture: a function of what was seen, in whatever order."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph.closed_form import ViewFeatures
from evergraph.closed_form import mixture as module
from evergraph.closed_form.fusing import SHARPNESS
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import UNLABELLED, Graph
from evergraph.methods import Auto, load_learner
from evergraph.nn import GCN, RandomFeatures
from evergraph.streams import GraphStream, Task
from evergraph.streams.task import Lease
from evergraph.training import Trainer

VIEWS = ("0|1|2+y", "0", "y", "2")
ORDERS = ([0, 1, 2, 3, 4, 5], [4, 0, 5, 2, 1, 3])


def auto(*views: str, width: int = 48, seed: int = 0, **options: Any) -> Auto:
    if "backbone" not in options:
        options["backbone"] = ViewFeatures(views=views or VIEWS, width=width, code_width=16)
    return Auto(trainer=Trainer(device="cpu"), generator=seeded(seed, "learner"), **options)


def learned(stream: GraphStream, *views: str, **options: Any) -> Auto:
    learner = auto(*views, **options)
    for task in stream:
        learner.fit_task(task)
    return learner


def scores_of(learner: Auto, graph: Graph) -> Tensor:
    return learner.logits(graph, torch.arange(graph.num_nodes))


def final_graph(stream: GraphStream) -> Graph:
    """Return the graph of everything; it shows training labels."""
    graph = stream.exams(len(stream) - 1, "global")[0].graph
    assert graph.bare is not None
    return graph


def by_label(scores: Tensor, stream: GraphStream) -> Tensor:
    """Return scores with a column for each of the dataset's labels, ascending."""
    return scores[:, torch.tensor(stream.classes).argsort()]


def accuracy(learner: Auto, stream: GraphStream) -> float:
    (exam,) = stream.exams(len(stream) - 1, "global")
    answers = learner.logits(exam.graph, exam.nodes).argmax(1)
    return float((answers == exam.labels).float().mean())


def only(task: Task, part: str, keep: Tensor) -> Task:
    """Return the task with some of its training or validation nodes alone."""
    return replace(
        task,
        **{
            part: getattr(task, part)[keep],
            f"{part}_labels": getattr(task, f"{part}_labels")[keep],
        },
    )


def never_labelled(task: Task, gone: Tensor) -> Task:
    """Return the task as it is if some nodes of its graph have no label.  gone: bool [nodes]"""
    shown = task.graph.labels.masked_fill(gone, UNLABELLED)
    rest = replace(task, lease=Lease(task.graph.structure.showing(shown)))
    for part in ("train", "validation"):
        rest = only(rest, part, ~gone[getattr(task, part)])
    return rest


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def close_to_scale(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """For what was counted out in float32: to rounding of the largest score, not of each."""
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())
    torch.testing.assert_close(found.softmax(1), expected.softmax(1), atol=tolerance, rtol=0)


# ------------------------------------------------------------------ order


@pytest.mark.parametrize("weights", ["class-sizes", "equal"])
def test_the_order_of_classes_changes_nothing(weights: Any, small_graph: Graph) -> None:
    answers, asked = [], []
    for order in ORDERS:
        stream = GraphStream(small_graph, order=order, edges="all")
        learner = learned(stream, refresh="embeddings", weights=weights)
        (exam,) = stream.exams(2, "global")
        asked.append(exam.nodes.sort().values)
        scores = learner.logits(exam.graph, asked[-1])
        answers.append(by_label(scores, stream))
    assert asked[0].equal(asked[1])
    for other in answers[1:]:
        close(other, answers[0], 1e-4)
        top, second = other.topk(2).values.t()
        sure = top - second > 1e-3
        assert sure.float().mean() > 0.95
        assert other.argmax(1)[sure].equal(answers[0].argmax(1)[sure])


def test_the_order_of_tasks_changes_nothing_where_they_are_apart(small_graph: Graph) -> None:
    answers = []
    for order in ([0, 1, 2, 3, 4, 5], [3, 2, 5, 4, 1, 0]):
        stream = GraphStream(small_graph, order=order, known_labels="everywhere")
        learner = learned(stream)
        graphs = [stream.exams(2, "local")[order.index(c) // 2].graph for c in (0, 2, 4)]
        assert all(graph.bare is not None for graph in graphs)
        answers.append(by_label(torch.cat([scores_of(learner, g) for g in graphs]), stream))
    for other in answers[1:]:
        close(other, answers[0], 1e-4)


def test_all_tasks_one_by_one_are_one_task_of_everything(small_graph: Graph) -> None:
    parts = GraphStream(small_graph, edges="all")
    whole = GraphStream(small_graph, edges="all", classes_per_task=6)
    one, other = learned(parts, refresh="embeddings"), learned(whole)
    close(scores_of(one, final_graph(parts)), scores_of(other, final_graph(whole)), 1e-4)


# ------------------------------------------------------------------ forgetting


@pytest.mark.parametrize(("weights", "seed"), [("class-sizes", 0), ("equal", 1)])
def test_forgetting_is_never_having_met(weights: Any, seed: int, small_graph: Graph) -> None:
    task = GraphStream(small_graph, classes_per_task=6).open(0)
    gone = torch.rand(task.graph.num_nodes, generator=seeded(seed, "gone")) < 0.3
    learner = auto(ledger=True, weights=weights)
    learner.fit_task(task)
    before = scores_of(learner, task.graph)
    learner.forget(task.ids[gone], task.graph, known_as=task.ids)
    rest = never_labelled(task, gone)
    never = auto(ledger=True, weights=weights)
    never.fit_task(rest)
    close(scores_of(learner, rest.graph), scores_of(never, rest.graph), 1e-5)
    assert not torch.allclose(scores_of(learner, task.graph), before, atol=1e-2)
    for name, tensor in never.probes_.state().items():
        assert tensor.equal(learner.probes_.state()[name]), name


@pytest.mark.parametrize("forgotten", [0, 1])
def test_forgetting_in_a_graph_of_one_task(forgotten: int, small_graph: Graph) -> None:
    """The learned nodes of the other task are not there to be counted again."""
    stream = GraphStream(small_graph, classes_per_task=3)
    gone_of = [
        torch.rand(task.graph.num_nodes, generator=seeded(task.index)) < 0.25 * (i == forgotten)
        for i, task in enumerate(stream)
    ]
    learner = learned(stream, ledger=True)
    task = stream.open(forgotten)
    learner.forget(task.ids[gone_of[forgotten]], task.graph, known_as=task.ids)
    never = auto(ledger=True)
    for index, gone in enumerate(gone_of):
        never.fit_task(never_labelled(stream.open(index), gone))
    for index, gone in enumerate(gone_of):
        graph = never_labelled(stream.open(index), gone).graph
        for seen in (graph, graph.structure):
            close_to_scale(scores_of(learner, seen), scores_of(never, seen), 1e-5)


def test_what_was_refreshed_is_forgotten_as_it_is_now(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    learner = learned(stream, refresh="embeddings")
    graph = final_graph(stream)
    gone = torch.arange(graph.num_nodes) % 4 == 0
    learner.forget(gone.nonzero().flatten(), graph)
    whole = GraphStream(small_graph, classes_per_task=6).open(0)
    never, rest = auto(), never_labelled(whole, gone)
    never.fit_task(rest)
    close(scores_of(learner, rest.graph), scores_of(never, rest.graph), 1e-5)


def test_a_learner_that_forgot_goes_on(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    learner, never = auto(refresh="embeddings"), auto(refresh="embeddings")
    task = stream.open(0)
    gone = torch.arange(task.graph.num_nodes) % 3 == 0
    learner.fit_task(task)
    learner.forget(task.ids[gone], task.graph, known_as=task.ids)
    never.fit_task(never_labelled(task, gone))
    later = stream.open(1)
    still = torch.isin(later.ids, task.ids[gone])
    for one in (learner, never):
        one.fit_task(never_labelled(later, still))
    graph = never_labelled(later, still).graph
    close(scores_of(learner, graph), scores_of(never, graph), 1e-5)


def test_a_label_forgotten_leaves_the_codes_of_its_neighbours(small_graph: Graph) -> None:
    """With a head on class codes alone: nobody sees the class of who was forgotten."""
    task = GraphStream(small_graph, classes_per_task=6).open(0)
    learner, never = auto("y", "2", ledger=True), auto("y", "2")
    learner.fit_task(task)
    before = learner.statistics_[0].gram_.clone()
    gone = torch.zeros(task.graph.num_nodes, dtype=torch.bool)
    gone[task.train[:1]] = True
    learner.forget(task.ids[gone], task.graph, known_as=task.ids)
    never.fit_task(never_labelled(task, gone))
    close(learner.statistics_[0].gram_.tril(), never.statistics_[0].gram_.tril(), 1e-6)
    # as much as the node's own part, and what its neighbours saw of it
    plain = auto("y", "2")
    plain.fit_task(only(task, "train", ~gone[task.train]))
    assert not torch.allclose(plain.statistics_[0].gram_.tril(), before.tril(), atol=1e-5)
    assert not torch.allclose(
        plain.statistics_[0].gram_.tril(), learner.statistics_[0].gram_.tril(), atol=1e-5
    )


def test_everything_can_be_forgotten(small_graph: Graph) -> None:
    task = GraphStream(small_graph).open(0)
    learner = auto(ledger=True)
    learner.fit_task(task)
    learner.forget(task.ids, task.graph, known_as=task.ids)
    assert len(learner.probes_) == 0
    assert not scores_of(learner, task.graph).any()


def test_forgetting_without_what_it_needs_is_refused(small_graph: Graph) -> None:
    task = GraphStream(small_graph).open(0)
    with pytest.raises(ConfigurationError, match="fit_task first"):
        auto(ledger=True).forget(torch.tensor([0]), task.graph)
    learner = auto()
    learner.fit_task(task)
    with pytest.raises(ConfigurationError, match="needs ledger=True"):
        learner.forget(torch.tensor([0]), task.graph)
    keeping = auto(ledger=True)
    keeping.fit_task(task)
    before = scores_of(keeping, task.graph)
    with pytest.raises(ConfigurationError, match="node 100000 is missing"):
        keeping.forget(torch.tensor([100_000]), task.graph, known_as=task.ids)
    assert scores_of(keeping, task.graph).equal(before)


# ------------------------------------------------------------------ merging


@pytest.mark.parametrize("weights", ["class-sizes", "equal"])
def test_learners_of_other_classes_merge(weights: Any, small_graph: Graph) -> None:
    stream = GraphStream(small_graph, classes_per_task=3, known_labels="everywhere")
    other = GraphStream(small_graph, classes_per_task=3, order=[5, 3, 4, 0, 1, 2])
    ours, theirs = auto(ledger=True, weights=weights), auto(ledger=True, weights=weights)
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


def test_learners_of_other_nodes_merge(small_graph: Graph) -> None:
    task = GraphStream(small_graph, classes_per_task=6).open(0)
    learners = [auto(weights="equal") for _ in range(3)]
    for place, learner in enumerate(learners[:2]):
        mine = task
        for part in ("train", "validation"):
            mine = only(mine, part, getattr(task, part) % 2 == place)
        learner.fit_task(mine)
    first, second, whole = learners
    whole.fit_task(task)
    first.merge(second)
    close(scores_of(first, task.graph), scores_of(whole, task.graph), 1e-4)


def test_merged_learners_part_again(small_graph: Graph) -> None:
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


def test_learners_of_other_features_are_not_merged(small_graph: Graph) -> None:
    task = GraphStream(small_graph).open(0)
    learner = auto()
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.merge(auto())
    learner.fit_task(task)
    for other in (auto(seed=1), auto("0", "2"), auto(width=32)):
        other.fit_task(task)
        with pytest.raises(ConfigurationError, match="same views, width and seed"):
            learner.merge(other)


# ------------------------------------------------------------------ labels


def test_labels_of_a_graph_as_a_user_has_it_are_not_looked_at(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    learner = learned(stream)
    hidden = small_graph.without_labels()
    nodes = torch.arange(small_graph.num_nodes)
    assert learner.predict(small_graph).equal(learner.predict(hidden))
    assert learner.predict_proba(small_graph).equal(learner.predict_proba(hidden))
    turned = small_graph.with_labels((small_graph.labels + 1) % 6)
    assert learner.logits(turned, nodes).equal(learner.logits(hidden, nodes))
    # where training labels are shown they are
    assert not learner.logits(final_graph(stream), nodes).equal(learner.logits(hidden, nodes))


def test_a_task_that_shows_all_labels_teaches_those_of_training_nodes_alone(
    small_graph: Graph,
) -> None:
    task = GraphStream(small_graph, classes_per_task=6).open(0)
    raw = replace(task, lease=Lease(small_graph))
    assert raw.graph.bare is None
    one, other = auto(), auto()
    one.fit_task(task)
    other.fit_task(raw)
    close(scores_of(other, task.graph), scores_of(one, task.graph), 1e-6)


def test_where_no_label_is_shown_views_without_codes_answer(small_graph: Graph) -> None:
    """As if there were no others: their heads are the same, and so is their mixture."""
    stream = GraphStream(small_graph, edges="all")
    every = learned(stream, "0|1+y", "0", "y", "1")
    plain = learned(stream, "0", "1")
    plain.backbone.seed = every.backbone.seed
    graph = final_graph(stream).structure
    assert every.backbone.prepare(graph).codes is None
    # the random matrices of hops 0 and 1 are drawn first, in either
    close(scores_of(every, graph), scores_of(plain, graph), 1e-4)


# ------------------------------------------------------------------ what each part is for


def test_class_codes_are_needed_where_features_tell_nothing() -> None:
    graph = load("synthetic", nodes=900, classes=4, homophily=0.8, noise=20.0, features=16)
    stream = GraphStream(graph, edges="all")
    options: dict[str, Any] = {"refresh": "embeddings", "width": 128}
    with_codes = accuracy(learned(stream, "0|1|2+y", "y", "2", **options), stream)
    without = accuracy(learned(stream, "0|1|2", "0", "2", **options), stream)
    assert with_codes > 0.75
    assert with_codes > without + 0.1


def heterophilous() -> GraphStream:
    graph = load("synthetic", nodes=900, classes=6, homophily=0.1, noise=0.3, features=16)
    return GraphStream(graph, edges="all")


def test_a_nodes_own_features_are_needed_where_neighbours_mislead() -> None:
    options: dict[str, Any] = {"refresh": "embeddings", "width": 128}
    with_own = accuracy(learned(heterophilous(), "0", "4", "2", **options), heterophilous())
    without = accuracy(learned(heterophilous(), "4", "2", "1", **options), heterophilous())
    assert with_own > without + 0.1


def test_fusing_is_needed_where_most_views_mislead() -> None:
    stream, views = heterophilous(), ("0", "4", "6", "3", "5", "2")
    options: dict[str, Any] = {"refresh": "embeddings", "width": 128}
    fused = learned(stream, *views, **options)
    fused_accuracy, shares = accuracy(fused, stream), fused.shares_
    assert max(shares, key=lambda view: shares[view]) == "0"
    assert sum(shares.values()) == pytest.approx(1.0)
    equal = accuracy(learned(stream, *views, fusing="equal", **options), stream)
    assert fused_accuracy > equal + 0.03


def test_shares_without_sharpness_give_the_same_answers(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    fitted, shares = learned(stream), learned(stream, fusing="shares")
    one, other = (scores_of(learner, final_graph(stream)) for learner in (fitted, shares))
    assert shares.sharpness_.tolist() == pytest.approx([SHARPNESS, SHARPNESS])
    close(other, one * SHARPNESS / float(fitted.sharpness_[1]), 1e-4)


def test_the_mixture_is_calibrated() -> None:
    """Confidence and accuracy agree: the weights are fitted by log-loss, sharpness included."""
    graph = load("synthetic", nodes=1500, classes=4, homophily=0.5, noise=0.6, features=16)
    stream = GraphStream(graph, edges="all", split=(0.5, 0.2, 0.3))
    learner = learned(stream, width=256, refresh="embeddings")
    (exam,) = stream.exams(1, "global")
    chances = learner.logits(exam.graph, exam.nodes).softmax(1).amax(1)
    assert float(chances.mean()) == pytest.approx(accuracy(learner, stream), abs=0.06)


# ------------------------------------------------------------------ when it is solved


def test_nothing_is_solved_before_somebody_asks(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[float] = []
    whole, factorise = module.balanced_ridge, torch.linalg.cholesky_ex

    def counted(statistics: Any, strength: float, **options: Any) -> Tensor:
        solved.append(strength)
        return whole(statistics, strength, **options)

    def refused(*_: Any) -> Any:
        raise AssertionError("nobody has asked")

    stream = GraphStream(small_graph)
    monkeypatch.setattr(module, "balanced_ridge", counted)
    monkeypatch.setattr(torch.linalg, "cholesky_ex", refused)
    learner = learned(stream)
    assert not solved
    monkeypatch.setattr(torch.linalg, "cholesky_ex", factorise)
    graph = stream.union_graph(2)
    first = scores_of(learner, graph)
    assert len(solved) == len(VIEWS)
    assert scores_of(learner, graph).equal(first)
    learner.state()
    assert len(solved) == len(VIEWS)  # once, and not for every question


def test_the_head_is_heads_times_their_weights(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    learner = learned(stream)
    learner.solve()
    head = learner.backbone.head
    assert head is not None
    assert learner.label_space_ is not None
    expand = learner.backbone.expansion()
    mixing = module.Mixing(expand, learner.label_space_, True, "fitted", learner.resources)
    told = learner.statistics_, learner.probes_, learner.probes_.rows()
    heads = [
        module.balanced_ridge(s, strength).float()
        for s, strength in zip(learner.statistics_, mixing.strengths(*told), strict=True)
    ]
    pairs = list(zip(head.weight.detach().split(48, dim=1), heads, strict=True))
    weights = [float((part * each.t()).sum() / each.square().sum()) for part, each in pairs]
    for (part, each), weight in zip(pairs, weights, strict=True):
        torch.testing.assert_close(part, weight * each.t())
    assert float(learner.sharpness_[1]) == pytest.approx(sum(weights), rel=1e-4)
    assert min(weights) >= 0


# ------------------------------------------------------------------ streams of all kinds


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_without_validation_nodes_all_views_weigh_the_same(
    setting: Any, small_graph: Graph
) -> None:
    stream = GraphStream(small_graph, setting=setting, edges="all")
    learner, nobody = auto(), torch.empty(0, dtype=torch.int64)
    for task in stream:
        learner.fit_task(replace(task, validation=nobody, validation_labels=nobody))
    learner.solve()
    assert learner.sharpness_.tolist() == pytest.approx([SHARPNESS, SHARPNESS])
    other = auto(seed=1)
    other.restore(learner.state(), stream.label_space(2))
    (exam,) = stream.exams(2, "global")
    answers = other.answer(exam.graph, exam.nodes, exam.tasks)
    assert answers.classes.equal(learner.answer(exam.graph, exam.nodes, exam.tasks).classes)
    assert float((answers.classes == exam.labels).float().mean()) > 0.8


def test_one_class_after_the_other(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, classes_per_task=1, edges="all")
    learner = auto(refresh="embeddings")
    for task in stream:
        learner.fit_task(task)
        exam = stream.exams(task.index, "global")[0]
        answer = learner.answer(exam.graph, exam.nodes)
        assert bool(answer.novelty.isfinite().all())
        assert float((answer.classes == exam.labels).float().mean()) > 0.8


def test_in_task_il_weights_are_fitted_within_tasks(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Tensor] = []
    whole = module.fused_weights

    def watched(scores: Tensor, labels: Tensor, *, allowed: Tensor, **options: Any) -> Tensor:
        assert allowed.equal((labels // 2)[:, None] == torch.arange(6) // 2)
        seen.append(labels)
        return whole(scores, labels, allowed=allowed, **options)

    monkeypatch.setattr(module, "fused_weights", watched)
    stream = GraphStream(small_graph, setting="task-il", edges="all")
    learner = learned(stream)
    (exam,) = stream.exams(2, "global")
    answers = learner.answer(exam.graph, exam.nodes, exam.tasks)
    assert float((answers.classes == exam.labels).float().mean()) > 0.9
    assert len(seen) == 2  # with class codes and without


@pytest.mark.parametrize("by", ["time", "blurred"])
def test_classes_that_come_back(by: Any, small_graph: Graph) -> None:
    times = torch.randint(4, (small_graph.num_nodes,), generator=seeded(0, "time"))
    graph = replace(small_graph, time=times)
    stream = GraphStream(graph, by=by, tasks=4, edges="all", blur=2.0)
    for refresh in ("none", "embeddings"):
        assert accuracy(learned(stream, refresh=refresh), stream) > 0.8


def test_refreshed_all_at_once_is_what_task_by_task_is(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    once = auto(refresh="embeddings")
    once.fit_task(stream.open(len(stream) - 1, cumulative=True))
    graph = final_graph(stream)
    steps = learned(stream, refresh="embeddings")
    torch.testing.assert_close(scores_of(once, graph), scores_of(steps, graph), atol=1e-3, rtol=0)


def test_without_the_graph_nothing_can_be_refreshed(small_graph: Graph) -> None:
    with pytest.raises(ConfigurationError, match="edges must be 'all', not 'within'"):
        learned(GraphStream(small_graph), refresh="embeddings")


def test_edges_of_one_way(small_graph: Graph) -> None:
    stream = GraphStream(replace(small_graph, undirected=False), edges="all")
    assert accuracy(learned(stream), stream) > 0.8


# ------------------------------------------------------------------ probes


def test_probes_do_not_depend_on_the_order_of_classes(small_graph: Graph) -> None:
    kept = []
    for order in ORDERS:
        stream = GraphStream(small_graph, order=order)
        probes = learned(stream, probes=5).probes_
        labels = torch.tensor(stream.classes)[probes.labels_]
        assert labels.equal(small_graph.labels[probes.nodes_])
        assert torch.bincount(labels).tolist() == [5] * 6
        kept.append(probes.nodes_.sort().values)
    assert kept[0].equal(kept[1])


def test_probes_are_seen_anew_where_the_graph_is_still_there(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    for refresh, is_new in (("embeddings", True), ("none", False)):
        learner = learned(stream, refresh=refresh, backbone=ViewFeatures(width=48))
        probes, seen = learner.probes_, learner.backbone.prepare(final_graph(stream))
        expected = seen.hops[probes.nodes_]
        same = torch.isclose(probes.hops_.float(), expected, atol=1e-3).all(1)
        assert bool(same[probes.labels_ >= 4].all())
        assert bool(same[probes.labels_ < 4].all()) is is_new


def test_few_enough_probes_are_looked_at_together(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Tensor] = []
    whole = module.fused_weights

    def watched(scores: Tensor, labels: Tensor, **options: Any) -> Tensor:
        asked.append(labels)
        return whole(scores, labels, **options)

    monkeypatch.setattr(module, "fused_weights", watched)
    monkeypatch.setattr(module, "MOST_SCORES", 6 * 4 * 18)  # classes, views, probes
    learned(GraphStream(small_graph)).solve()
    coded, plain = asked
    assert torch.bincount(coded).tolist() == [3] * 6
    assert torch.bincount(plain).tolist() == [6] * 6  # half of the views need no codes


# ------------------------------------------------------------------ what it keeps


def test_usage_counts_statistics_probes_and_ledger(small_graph: Graph) -> None:
    task = GraphStream(small_graph).open(0)
    learner = auto(probes=4)
    learner.fit_task(task)
    values = 48 * 49 // 2 + 2 * 48  # a triangle, and the sums of two classes
    assert learner.usage.statistics == 4 * values
    row = 3 * 16 + 2 * 16  # hops 0, 1 and 2 of 16 features, two hops of codes
    assert learner.usage.samples == 2 * 4 * row
    statistics = 4 * (48 * 49 // 2 * 4 + 2 * 48 * 8 + 2 * 16)
    assert learner.usage.bytes == statistics + 2 * 4 * (2 * row + 16)
    ledger = auto(probes=4, ledger=True)
    ledger.fit_task(task)
    entries = len(task.train) + len(task.validation)
    assert ledger.usage.bytes == learner.usage.bytes + 20 * entries


@pytest.mark.parametrize(
    ("keep", "classes", "features"), [("5MB", 10, 800), ("10MB", 40, 300), ("1MB", 4, 16)]
)
def test_no_more_is_kept_than_may_be(keep: str, classes: int, features: int) -> None:
    graph = load("synthetic", nodes=40 * classes, classes=classes, features=features)
    stream = GraphStream(graph, edges="all", classes_per_task=classes // 2, split=(0.2, 0.7, 0.1))
    learner = Auto(memory=keep, trainer=Trainer(device="cpu"), generator=seeded(0))
    limit = int(float(keep.removesuffix("MB")) * 1e6)
    for task in stream:
        learner.fit_task(task)
        assert learner.usage.bytes <= limit
    assert learner.usage.bytes > 0.6 * limit  # and what may be kept is made use of
    assert len(learner.probes_) >= 2 * classes


def test_what_may_be_kept_does_not_depend_on_the_order() -> None:
    graph = load("synthetic", nodes=600, classes=6, features=1000)
    kept = []
    for order in ORDERS:
        stream = GraphStream(graph, order=order, split=(0.2, 0.7, 0.1))
        learner = Auto(memory="1MB", trainer=Trainer(device="cpu"), generator=seeded(0))
        for task in stream:
            learner.fit_task(task)
        kept.append(learner.probes_.nodes_.sort().values)
    assert len(kept[0]) < 6 * 70
    assert kept[0].equal(kept[1])


def test_more_room_is_for_more_and_wider_views() -> None:
    def made(keep: str | int) -> ViewFeatures:
        return Auto(memory=keep, trainer=Trainer(device="cpu"), generator=seeded(0)).backbone

    small, middle, large = made("500kB"), made(2_000_000), made("150MB")
    assert len(small.views) < len(middle.views) < len(large.views) == 5
    assert not small.parsed[0].codes  # a single view must answer where no label is shown
    assert middle.width >= 512
    assert large.width > made("50MB").width


def test_a_learner_with_a_limit_is_saved_and_loaded(small_graph: Graph, tmp_path: Path) -> None:
    stream = GraphStream(small_graph, edges="all")
    backbone = ViewFeatures(views=VIEWS, code_width=8)
    learner = auto(memory="300kB", backbone=backbone, ledger=True, weights="equal")
    learner.fit_task(stream.open(0))
    learner.save(tmp_path / "learner.eg")
    loaded = load_learner(tmp_path / "learner.eg")
    assert isinstance(loaded, Auto)
    assert repr(loaded) == repr(learner)
    assert (loaded.backbone.views, loaded.backbone.width) == (
        learner.backbone.views,
        learner.backbone.width,
    )
    for one in (learner, loaded):
        one.fit_task(stream.open(1))
        one.forget(torch.tensor([3, 5]), stream.open(1).graph, known_as=stream.open(1).ids)
    for key, value in learner.state().items():
        assert value.equal(loaded.state()[key]), key


@pytest.mark.parametrize("options", [{}, {"refresh": "embeddings"}, {"ledger": True}])
def test_a_restored_learner_goes_on_to_the_same_bits(
    options: dict[str, Any], small_graph: Graph
) -> None:
    stream = GraphStream(small_graph, edges="all")
    whole, resumed = auto(**options), auto(seed=99, **options)
    whole.fit_task(stream.open(0))
    state = {name: tensor.clone() for name, tensor in whole.state().items()}
    resumed.restore(state, stream.label_space(0))
    for index in (1, 2):
        for learner in (whole, resumed):
            learner.fit_task(stream.open(index))
    assert whole.state().keys() == resumed.state().keys()
    for name, tensor in whole.state().items():
        assert tensor.equal(resumed.state()[name]), name
    assert whole.usage == resumed.usage
    assert whole.recomputed == resumed.recomputed


# ------------------------------------------------------------------ novelty


def test_novelty_is_what_the_best_score_lacks(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    learner = learned(stream)
    learner.solve()
    bare, coded = learner.sharpness_.tolist()
    given = torch.tensor([[0.5, 2.0, 1.0, 0.0, 0.0, 0.0]])
    node = torch.tensor([0])
    graph = final_graph(stream)
    assert float(learner.novelty(graph, node, logits=given)) == pytest.approx(1 - 2 / coded)
    found = learner.novelty(graph.structure, node, logits=given)
    assert float(found) == pytest.approx(1 - 2 / bare)


def test_what_is_not_learned_yet_is_newer(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    learner = auto()
    for index in range(2):
        learner.fit_task(stream.open(index))
    (exam,) = stream.preview(1, "global")
    novelty = learner.novelty(exam.graph, exam.nodes)
    new, old = novelty[exam.tasks == 2], novelty[exam.tasks < 2]
    assert float((new[:, None] > old).float().mean()) > 0.8


# ------------------------------------------------------------------ what is refused and said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probes": 0}, "probes must be an integer of at least 1, not 0"),
        ({"weights": "heavy"}, "weights"),
        ({"refresh": "corrected"}, "refresh"),
        ({"fusing": "some"}, "fusing"),
        ({"backbone": GCN()}, "use backbone 'landmark-features', not 'gcn'"),
        (
            {"backbone": RandomFeatures(), "memory": "5MB"},
            "not 'random-features'",
        ),
        ({"memory": "a lot"}, "such as 4GB or 512MiB, above 0, not 'a lot'"),
        ({"memory": "-5MB"}, "above 0, not '-5MB'"),
        ({"memory": 0}, "above 0, not 0"),
        ({"memory": "10kB"}, "memory must leave room for a view of width 64, 11,702 bytes"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Auto(trainer=Trainer(device="cpu"), generator=seeded(0), **options)


def test_the_log_says_how_much_each_view_counts(
    small_graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    learner = learned(GraphStream(small_graph), "0", "2+y")
    with caplog.at_level(logging.DEBUG, "evergraph"):
        learner.solve()
    assert "views: 0 " in caplog.text
    assert "2+y " in caplog.text


def test_a_trainer_cannot_drive_it(small_graph: Graph) -> None:
    learner = auto()
    with pytest.raises(ConfigurationError, match="auto learns a task as a whole: call fit_task"):
        learner.trainer.fit(learner, GraphStream(small_graph).open(0))
