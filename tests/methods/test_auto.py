"""Heads on several views in one mixture: a function of what was seen, in whatever order."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from auto_learners import VIEWS, accuracy, auto, close, final_graph, learned, scores_of
from evergraph.closed_form import engine as module
from evergraph.closed_form.fusing import SHARPNESS
from evergraph.closed_form.ridge import balanced_ridge
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.methods import Auto
from evergraph.nn import RandomFeatures
from evergraph.streams import GraphStream
from evergraph.streams.task import Lease
from evergraph.training import Trainer


@pytest.fixture(scope="module")
def known(stream: GraphStream) -> Auto:
    """A learner of the whole stream, for questions alone."""
    learner = learned(stream)
    learner.solve()
    return learner


# ------------------------------------------------------------------ order


def by_label(scores: Tensor, stream: GraphStream) -> Tensor:
    """Return scores with a column for each of the dataset's labels, ascending."""
    return scores[:, torch.tensor(stream.classes).argsort()]


@pytest.mark.parametrize("weights", ["class-sizes", "equal"])
def test_the_order_of_classes_changes_nothing(weights, small_graph):
    answers, asked = [], []
    for order in ([0, 1, 2, 3, 4, 5], [4, 0, 5, 2, 1, 3]):
        stream = GraphStream(small_graph, order=order, edges="all")
        learner = learned(stream, refresh="embeddings", weights=weights)
        (exam,) = stream.exams(2, "global")
        asked.append(exam.nodes.sort().values)
        answers.append(by_label(learner.logits(exam.graph, asked[-1]), stream))
    assert asked[0].equal(asked[1])
    one, other = answers
    close(other, one, 1e-4)
    top, second = other.topk(2).values.t()
    sure = top - second > 1e-3
    assert sure.float().mean() > 0.95
    assert other.argmax(1)[sure].equal(one.argmax(1)[sure])


def test_tasks_in_turn_are_one_task_of_everything(small_graph, stream):
    whole = GraphStream(small_graph, edges="all", classes_per_task=6)
    one, other = learned(stream, refresh="embeddings"), learned(whole)
    close(scores_of(one, final_graph(stream)), scores_of(other, final_graph(whole)), 1e-4)


# ------------------------------------------------------------------ labels


def test_labels_of_a_graph_as_a_user_has_it_are_not_looked_at(small_graph, stream, known):
    hidden = small_graph.without_labels()
    assert known.predict(small_graph).equal(known.predict(hidden))
    assert known.predict_proba(small_graph).equal(known.predict_proba(hidden))
    turned = small_graph.with_labels((small_graph.labels + 1) % 6)
    assert scores_of(known, turned).equal(scores_of(known, hidden))
    # where training labels are shown they are
    assert not scores_of(known, final_graph(stream)).equal(scores_of(known, hidden))


def test_only_labels_of_training_nodes_are_learned(small_graph):
    task = GraphStream(small_graph, classes_per_task=6).open(0)
    raw = replace(task, lease=Lease(small_graph))
    assert raw.graph.bare is None
    one, other = auto(), auto()
    one.fit_task(task)
    other.fit_task(raw)
    close(scores_of(other, task.graph), scores_of(one, task.graph), 1e-6)


def test_where_no_label_is_shown_views_without_codes_answer(stream):
    """As if there were no others: their heads are the same, and so is their mixture."""
    every = learned(stream, "0|1+y", "0", "y", "1")
    plain = learned(stream, "0", "1")
    plain.backbone.seed = every.backbone.seed
    graph = final_graph(stream).structure
    assert every.backbone.prepare(graph).codes is None
    # the random matrices of hops 0 and 1 are drawn first, in either
    close(scores_of(every, graph), scores_of(plain, graph), 1e-4)


# ------------------------------------------------------------------ what each part is for


def accuracy_of(stream: GraphStream, *views: str, **options: Any) -> float:
    return accuracy(learned(stream, *views, width=128, refresh="embeddings", **options), stream)


def test_class_codes_are_needed_where_features_tell_nothing():
    graph = load("synthetic", nodes=900, classes=4, homophily=0.8, noise=20.0, features=16)
    stream = GraphStream(graph, edges="all")
    with_codes = accuracy_of(stream, "0|1|2+y", "y", "2")
    assert with_codes > 0.75
    assert with_codes > accuracy_of(stream, "0|1|2", "0", "2") + 0.1


@pytest.fixture(scope="module")
def heterophilous() -> GraphStream:
    graph = load("synthetic", nodes=900, classes=6, homophily=0.1, noise=0.3, features=16)
    return GraphStream(graph, edges="all")


def test_own_features_are_needed_where_neighbours_mislead(heterophilous):
    without = accuracy_of(heterophilous, "4", "2", "1")
    assert accuracy_of(heterophilous, "0", "4", "2") > without + 0.1


def test_fusing_is_needed_where_most_views_mislead(heterophilous, monkeypatch):
    plain = module.fused_weights
    views = ("0", "4", "6", "3", "5", "2")
    fused = learned(heterophilous, *views, width=128, refresh="embeddings")
    fused.solve()
    monkeypatch.setattr(
        module, "fused_weights", lambda scores, labels, **_: plain(scores[:0], labels[:0])
    )
    assert accuracy(fused, heterophilous) > accuracy_of(heterophilous, *views) + 0.03
    lengths = fused.backbone.head.weight.unflatten(1, (len(views), -1)).norm(dim=(0, 2))
    lengths = lengths * fused.backbone.mixture[1]
    assert views[int(lengths.argmax())] == "0"


def test_the_mixture_is_calibrated():
    """Confidence and accuracy agree: the weights are fitted by log-loss, sharpness included."""
    graph = load("synthetic", nodes=1500, classes=4, homophily=0.5, noise=0.6, features=16)
    stream = GraphStream(graph, edges="all", split=(0.5, 0.2, 0.3))
    learner = learned(stream, width=128, refresh="embeddings")
    (exam,) = stream.exams(1, "global")
    chances = learner.logits(exam.graph, exam.nodes).softmax(1).amax(1)
    assert float(chances.mean()) == pytest.approx(accuracy(learner, stream), abs=0.06)


# ------------------------------------------------------------------ when it is solved


def test_nothing_is_solved_before_somebody_asks(small_graph, monkeypatch):
    solved = []
    whole, factorise = module.ViewEngine.solution, torch.linalg.cholesky_ex

    def counted(engine, place):
        solved.append(place)
        return whole(engine, place)

    refused = Mock(side_effect=AssertionError("nobody has asked"))
    stream = GraphStream(small_graph)
    monkeypatch.setattr(module.ViewEngine, "solution", counted)
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


def test_the_heads_are_those_of_the_sums(known):
    head = known.backbone.head
    assert known.label_space_ is not None
    heads = [
        balanced_ridge(sums, strength).float()
        for sums, strength in zip(known.engine_.sums_, known.engine_.strengths_, strict=True)
    ]
    for part, each in zip(head.weight.detach().split(48, dim=1), heads, strict=True):
        torch.testing.assert_close(part, each.t())
    assert known.backbone.sharpness.tolist() == known.backbone.mixture.sum(1).tolist()
    assert float(known.backbone.mixture.min()) >= 0


# ------------------------------------------------------------------ streams of all kinds


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_without_validation_nodes_views_weigh_the_same(setting, small_graph):
    stream = GraphStream(small_graph, setting=setting, edges="all")
    learner, nobody = auto(), torch.empty(0, dtype=torch.int64)
    for task in stream:
        learner.fit_task(replace(task, validation=nobody, validation_labels=nobody))
    learner.solve()
    assert learner.backbone.sharpness.tolist() == pytest.approx([SHARPNESS, SHARPNESS])
    other = auto(seed=1)
    other.restore(learner.state(), stream.label_space(2))
    (exam,) = stream.exams(2, "global")
    answers = other.answer(exam.graph, exam.nodes, exam.tasks)
    assert answers.classes.equal(learner.answer(exam.graph, exam.nodes, exam.tasks).classes)
    assert float((answers.classes == exam.labels).float().mean()) > 0.8


def test_one_class_after_the_other(small_graph):
    stream = GraphStream(small_graph, classes_per_task=1, edges="all")
    learner = auto(refresh="embeddings")
    for task in stream:
        learner.fit_task(task)
        exam = stream.exams(task.index, "global")[0]
        answer = learner.answer(exam.graph, exam.nodes)
        assert bool(answer.novelty.isfinite().all())
        assert float((answer.classes == exam.labels).float().mean()) > 0.8


def test_task_il_weights_are_fitted_within_tasks(small_graph, monkeypatch):
    seen = []
    whole = module.fused_weights

    def watched(scores, labels, *, allowed, **options):
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


def test_without_the_graph_nothing_can_be_refreshed(small_graph):
    with pytest.raises(ConfigurationError, match="edges must be 'all', not 'within'"):
        learned(GraphStream(small_graph), refresh="embeddings")


def test_edges_of_one_way(small_graph):
    stream = GraphStream(replace(small_graph, undirected=False), edges="all")
    assert accuracy(learned(stream), stream) > 0.8


# ------------------------------------------------------------------ novelty


def test_novelty_is_what_the_best_score_lacks(stream, known):
    given, node = torch.tensor([[0.5, 2.0, 1.0, 0.0, 0.0, 0.0]]), torch.tensor([0])
    graph = final_graph(stream)
    both = zip(known.backbone.sharpness.tolist(), (graph.structure, graph), strict=True)
    for sharpness, seen in both:
        found = known.novelty(seen, node, logits=given)
        assert float(found) == pytest.approx(1 - 2 / sharpness)


def test_far_hops_of_a_graph_that_shows_labels_are_not_computed(small_graph):
    stream = GraphStream(small_graph)
    learner = learned(stream, "0|1+y", "0", "9", "c")
    far, ends = learner.backbone._caches[-2:]
    (exam,) = stream.exams(len(stream) - 1, "global")
    assert not learner.novelty(exam.graph, exam.nodes).isnan().any()
    assert not {exam.graph.structure} & {*far._embeddings, *ends._embeddings}
    learner.logits(exam.graph.structure, exam.nodes)  # without labels, a head reads them
    assert {exam.graph.structure} <= {*far._embeddings} & {*ends._embeddings}


def test_what_is_not_learned_yet_is_newer(stream):
    learner = auto()
    for index in range(2):
        learner.fit_task(stream.open(index))
    (exam,) = stream.preview(1, "global")
    novelty = learner.novelty(exam.graph, exam.nodes)
    new, old = novelty[exam.tasks == 2], novelty[exam.tasks < 2]
    assert float((new[:, None] > old).float().mean()) > 0.8


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": RandomFeatures(), "memory": "5MB"}, "not 'random-features'"),
        ({"memory": "a lot"}, "such as 4GB or 512MiB, above 0, not 'a lot'"),
        ({"memory": "-5MB"}, "above 0, not '-5MB'"),
        ({"memory": 0}, "above 0, not 0"),
        ({"memory": "10kB"}, "memory must leave room for a view of width 64, 13,653 bytes"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Auto(trainer=Trainer(device="cpu"), generator=seeded(0), **options)


def test_a_trainer_cannot_drive_it(stream):
    learner = auto()
    with pytest.raises(ConfigurationError, match="auto learns a task as a whole: call fit_task"):
        learner.trainer.fit(learner, stream.open(0))
