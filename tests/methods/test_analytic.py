"""A head in closed form: by hand, against its least-squares problem, and whatever way it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.memory import ClassStatistics
from evergraph.methods import Analytic
from evergraph.methods.analytic import LADDER
from evergraph.methods.balanced_ridge import (
    TOLERANCE,
    balanced_moments,
    balanced_ridge,
    choose_regularisation,
)
from evergraph.nn import PDGNN, RandomFeatures, random_features
from evergraph.streams import GraphStream, Task
from evergraph.training import Trainer

Array = npt.NDArray[np.float64]
seeds = st.integers(0, 10_000)
every_weights = pytest.mark.parametrize("weights", ["equal", "class-sizes"])


# ------------------------------------------------------------------ the head, from statistics


def nodes_of(seed: int, sizes: Sequence[int] = (3, 9, 6), width: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    centres = torch.randn(len(sizes), width, generator=generator)
    return centres[labels] + torch.randn(len(labels), width, generator=generator), labels


def statistics_of(features: Tensor, labels: Tensor, weights: Tensor) -> ClassStatistics:
    statistics = ClassStatistics(features.shape[1])
    statistics.add(features, labels, weights)
    return statistics


def balanced(labels: Tensor) -> Tensor:
    return labels.bincount()[labels].float().reciprocal()


def least_squares(features: Array, labels: Array, weights: Array, penalty: float) -> Array:
    """argmin Σ w_i ‖y_i - V'φ_i‖² + penalty ‖V‖², as an ordinary problem with rows appended."""
    width, roots = features.shape[1], np.sqrt(weights)[:, None]
    rows = np.concatenate([roots * features, np.sqrt(penalty) * np.eye(width)])
    wanted = np.eye(labels.max() + 1)[labels]
    targets = np.concatenate([roots * wanted, np.zeros((width, wanted.shape[1]))])
    solution: Array = np.linalg.lstsq(rows, targets, rcond=None)[0]
    return solution


@settings(max_examples=25, deadline=None)
@given(
    seed=seeds,
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    regularisation=st.sampled_from([1.0, 0.1, 0.01]),
    factor=st.sampled_from([1.0, 0.6, 7.0]),
)
def test_the_head_solves_the_class_balanced_problem(
    seed: int, sizes: list[int], regularisation: float, factor: float
) -> None:
    features, labels = nodes_of(seed, sizes)
    # A common factor of all weights, such as the share of training nodes, changes nothing.
    statistics = statistics_of(features, labels, factor * balanced(labels))
    weights = (1 / labels.bincount().double())[labels].numpy()
    exact = features.double().numpy()
    penalty = regularisation * float((weights[:, None] * exact**2).sum(0).mean())
    expected = least_squares(exact, labels.numpy(), weights, penalty)
    head = balanced_ridge(statistics, regularisation).numpy()
    np.testing.assert_allclose(head, expected, atol=1e-4 * np.abs(expected).max())


def test_moments_of_unequal_masses_follow_the_formula() -> None:
    features, labels = nodes_of(3)
    matrix, means = balanced_moments(statistics_of(features, labels, torch.ones(18)))
    phi = features.double().numpy()
    centres = np.stack([phi[labels.numpy() == c].mean(0) for c in range(3)])
    scatter = (phi - centres[labels.numpy()]).T @ (phi - centres[labels.numpy()])
    expected = 3 / 18 * scatter + centres.T @ centres
    np.testing.assert_allclose(means.T.numpy(), centres, atol=1e-6)
    np.testing.assert_allclose(np.tril(matrix.numpy()), np.tril(expected), atol=1e-5)


def test_equal_weights_are_exact_where_classes_scatter_alike() -> None:
    spread = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    features = torch.cat([spread + 1.0, (spread - 3.0).repeat(5, 1)])
    labels = torch.tensor([0] * 4 + [1] * 20)
    heads = [
        balanced_ridge(statistics_of(features, labels, weights), 0.1)
        for weights in (torch.ones(24), balanced(labels))
    ]
    torch.testing.assert_close(heads[0], heads[1], atol=1e-6, rtol=1e-5)


def test_the_smaller_class_counts_as_much_as_the_larger() -> None:
    # Twelve nodes of class 0, three of them where both nodes of class 1 are: 3/12 against 2/2.
    here, there = [1.0, 1.0], [1.0, -1.0]
    features, labels = torch.tensor([there] * 9 + [here] * 5), torch.tensor([0] * 12 + [1] * 2)
    places = torch.tensor([there, here]).double()
    head = balanced_ridge(statistics_of(features, labels, balanced(labels)), 1e-9)
    scores = places @ head
    torch.testing.assert_close(scores, torch.tensor([[1.0, 0.0], [0.2, 0.8]]).double())
    # Every node alike: 3 against 2, and class 1 is never given.
    alike = least_squares(features.double().numpy(), labels.numpy(), np.ones(14), 1e-9)
    assert (places.numpy() @ alike).argmax(1).tolist() == [0, 0]


def test_a_class_without_nodes_takes_no_part() -> None:
    features, labels = nodes_of(5)
    statistics = statistics_of(features, labels, balanced(labels))
    without = balanced_ridge(statistics, 0.1)
    statistics.grow(5)
    head = balanced_ridge(statistics, 0.1)
    assert head[:, :3].equal(without)
    assert not head[:, 3:].any()


@pytest.mark.parametrize("regularisation", [0.0, 1e-12, 0.01])
def test_singular_matrices_still_solve(regularisation: float) -> None:
    features, labels = torch.ones(4, 6), torch.tensor([0, 0, 1, 1])
    features[2:, :3] = 0.0  # six features, two directions
    head = balanced_ridge(statistics_of(features, labels, balanced(labels)), regularisation)
    scores = torch.stack([features[0], features[3]]).double() @ head
    assert scores.argmax(1).tolist() == [0, 1]
    torch.testing.assert_close(scores, torch.eye(2).double(), atol=0.1, rtol=0.0)
    assert not balanced_ridge(ClassStatistics(3), 0.1).any()  # nothing seen, nothing known


def test_numbers_that_are_none_are_refused_instead_of_tried_for_ever() -> None:
    features = torch.full((2, 3), 1e30)  # whose squares no float32 holds
    statistics = statistics_of(features, torch.tensor([0, 1]), torch.ones(2))
    with pytest.raises(DataError, match="small enough to be squared"):
        balanced_ridge(statistics, 0.1)


def error_of(head: Tensor, features: Tensor, labels: Tensor) -> float:
    """Σ_c 1/n_c Σ_{i∈c} ‖y_i - V'φ_i‖², node by node."""
    wanted = torch.eye(head.shape[1], dtype=torch.float64)[labels]
    misses = (wanted - features.double() @ head).square().sum(1)
    return float((misses * balanced(labels)).sum())


def held_out_errors(training: ClassStatistics, features: Tensor, labels: Tensor) -> list[float]:
    return [error_of(balanced_ridge(training, value), features, labels) for value in LADDER]


def least_allowed(errors: list[float]) -> float:
    limit = (1 + TOLERANCE) * min(errors)
    return min(value for value, error in zip(LADDER, errors, strict=True) if error <= limit)


def test_the_regularisation_chosen_has_the_error_computed_node_by_node() -> None:
    chosen = set()
    for seed in range(12):
        features, labels = nodes_of(seed, sizes=(8, 20, 12), width=12)
        seen = torch.rand(40, generator=torch.Generator().manual_seed(seed)) < 0.5
        training, validation = (
            statistics_of(features[part], labels[part], balanced(labels[part]))
            for part in (seen, ~seen)
        )
        chosen.add(choose_regularisation(training, validation, LADDER))
        expected = least_allowed(held_out_errors(training, features[~seen], labels[~seen]))
        assert choose_regularisation(training, validation, LADDER) == expected
        narrow = validation.narrowed(7)  # the choice is made on as many features
        expected = choose_regularisation(training.narrowed(7), narrow, LADDER)
        assert choose_regularisation(training, narrow, LADDER) == expected
    assert len(chosen) > 1  # or a constant would do


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_scores_of_a_class_without_validation_nodes_count_as_errors(seed: int) -> None:
    features, labels = nodes_of(seed, sizes=(8, 20, 12), width=12)
    seen = torch.rand(40, generator=torch.Generator().manual_seed(seed)) < 0.5
    training = statistics_of(features[seen], labels[seen], balanced(labels[seen]))
    asked = ~seen & (labels < 2)  # nobody of the last class
    validation = statistics_of(features[asked], labels[asked], balanced(labels[asked]))
    expected = least_allowed(held_out_errors(training, features[asked], labels[asked]))
    assert choose_regularisation(training, validation, LADDER) == expected


def test_a_perfect_fit_is_a_choice_like_any_other() -> None:
    # Two points, one a class: the error rounds to a little less than 0.
    features = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).relu()
    features, labels = features.repeat_interleave(2, 0), torch.tensor([0, 0, 1, 1])
    statistics = statistics_of(features, labels, torch.full((4,), 1 / 3))
    assert choose_regularisation(statistics, statistics, LADDER) in LADDER


# ------------------------------------------------------------------ the learner


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


def only(task: Task, part: str, keep: Tensor) -> Task:
    """Return the task with some of its training or validation nodes alone."""
    taken = {
        part: getattr(task, part)[keep],
        f"{part}_labels": getattr(task, f"{part}_labels")[keep],
    }
    return replace(task, **taken)


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
    assert learner.backbone.head is not None
    return learner.backbone.head.weight.data


def test_a_node_weighs_one_over_the_size_of_its_class(small_graph: Graph) -> None:
    stream = GraphStream(small_graph)
    task = stream.open(0)
    for weights, expected in (("equal", 1.0), ("class-sizes", 1 / task.met_sizes[1])):
        learner = learner_of(weights=weights, ledger=True)
        learner.fit_task(task)
        entries = learner.ledger_.part("train")
        assert entries.ids.equal(task.ids[task.train])
        assert entries.labels.equal(task.train_labels)
        found = entries.weights[task.train_labels == 1]
        torch.testing.assert_close(found, torch.full_like(found, expected))


@pytest.mark.parametrize("rank", [None, 6])
def test_nodes_are_expanded_a_few_at_a_time_and_compressed_once(
    rank: int | None, small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = GraphStream(small_graph, edges="all")
    whole = learned(stream, rank=rank, refresh="embeddings")
    monkeypatch.setattr(random_features, "BLOCK_VALUES", 7 * 24)  # seven rows of 24 features
    expanded, compressed = [], []
    expand, compress = RandomFeatures.expand, ClassStatistics._compress
    monkeypatch.setattr(
        RandomFeatures, "expand", lambda s, rows: (expanded.append(len(rows)), expand(s, rows))[1]
    )
    monkeypatch.setattr(
        ClassStatistics, "_compress", lambda s, r: (compressed.append(r), compress(s, r))[1]
    )
    parts = learned(stream, rank=rank, refresh="embeddings")
    assert_same(parts.statistics_, whole.statistics_, 1e-5)
    assert_same(parts.validation_, whole.validation_, 1e-5)
    for learner in (parts, whole):
        learner.forget(torch.arange(0, 360, 3), stream.union_graph(2))
    assert max(expanded) == 7
    assert_same(parts.statistics_, whole.statistics_, 1e-5)
    # counted in three times, out and in again twice, and both have forgotten once
    assert compressed == ([] if rank is None else [rank] * (3 + 4 + 2))


@pytest.mark.parametrize("testing", ["local", "global"])
def test_the_order_of_tasks_changes_nothing(testing: Any, small_graph: Graph) -> None:
    answers = []
    for order in ([0, 1, 2, 3, 4, 5], [4, 5, 0, 1, 2, 3], [3, 2, 5, 4, 1, 0]):
        stream = GraphStream(small_graph, order=order)
        learner = learned(stream)
        of_label = torch.tensor(stream.classes).argsort()  # the column of each of the dataset's
        graphs = [stream.union_graph(2)]
        if testing == "local":  # classes 0 and 1, then 2 and 3, then 4 and 5
            graphs = [stream.local_graph(order.index(label) // 2) for label in (0, 2, 4)]
        scores = [learner.logits(graph, torch.arange(graph.num_nodes)) for graph in graphs]
        answers.append(torch.cat(scores)[:, of_label])
    for other in answers[1:]:
        torch.testing.assert_close(other, answers[0], atol=1e-4, rtol=1e-4)
        assert other.argmax(1).equal(answers[0].argmax(1))


@every_weights
def test_all_tasks_one_by_one_give_the_head_of_one_pass_over_everything(
    weights: Any, small_graph: Graph
) -> None:
    stream = GraphStream(small_graph)
    learner, joint = learned(stream, weights=weights), learner_of(weights=weights)
    joint.fit_task(stream.open(2, cumulative=True))
    assert_same(learner.statistics_, joint.statistics_)
    assert learner.regularisation_ == joint.regularisation_
    torch.testing.assert_close(weights_of(learner), weights_of(joint), atol=1e-3, rtol=1e-3)


@every_weights
@settings(max_examples=15, deadline=None)
@given(seed=seeds, part=st.lists(st.booleans(), min_size=60, max_size=60))
def test_two_learners_merged_are_one_that_learned_both(
    weights: Any, seed: int, part: list[bool]
) -> None:
    task = task_of(seed)
    first = torch.tensor(part[: len(task.train)])
    learners = []
    for keep in (first, ~first, torch.ones_like(first)):
        learners.append(learner_of(weights=weights, regularisation=0.1))
        learners[-1].fit_task(only(task, "train", keep))
    ours, theirs, both = learners
    ours.merge(theirs)
    assert_same(ours.statistics_, both.statistics_)
    torch.testing.assert_close(weights_of(ours), weights_of(both), atol=1e-3, rtol=1e-3)


@every_weights
@settings(max_examples=15, deadline=None)
@given(seed=seeds, share=st.floats(0.0, 0.7))
def test_forgetting_is_never_having_learned(weights: Any, seed: int, share: float) -> None:
    task = task_of(seed)
    gone = torch.rand(task.graph.num_nodes, generator=seeded(seed, "gone")) < share
    learner, before = (learner_of(weights=weights, ledger=True) for _ in range(2))
    for one in (learner, before):
        one.fit_task(task)
    learner.forget(task.ids[gone], task.graph, known_as=task.ids)
    rest = only(task, "train", ~gone[task.train])
    never = learner_of(weights=weights, ledger=True)
    never.fit_task(only(rest, "validation", ~gone[task.validation]))
    assert_same(learner.statistics_, never.statistics_, before=before.statistics_)
    never.validation_.grow(4)  # of a class or two no node may be left
    assert_same(learner.validation_, never.validation_, before=before.validation_)
    for name, tensor in never.ledger_.state().items():
        assert tensor.equal(learner.ledger_.state()[name])


def test_a_class_forgotten_whole_is_never_given_again() -> None:
    task = task_of(0)
    learner = learner_of(ledger=True)
    learner.fit_task(task)
    nodes = torch.arange(task.graph.num_nodes)
    assert (learner.predict(task.graph, nodes) == 2).any()
    learner.forget((nodes % 4 == 2).nonzero().flatten(), task.graph)
    assert not (learner.predict(task.graph, nodes) == 2).any()
    assert not weights_of(learner)[2].any()


def test_learners_of_other_classes_merge_and_part_again() -> None:
    graph = random_graph(1)
    stream, other = GraphStream(graph), GraphStream(graph, order=[2, 3, 0, 1])
    ours, theirs = learner_of(ledger=True), learner_of(ledger=True)
    ours.fit_task(stream.open(0))
    theirs.fit_task(other.open(0))  # the dataset's 2 and 3 are its 0 and 1
    alone = {name: tensor.clone() for name, tensor in ours.statistics_.state().items()}
    ours.merge(theirs, classes=torch.tensor([2, 3]))
    assert_same(ours.statistics_, learned(stream).statistics_)
    assert ours.label_space_ is not None
    assert ours.label_space_.num_classes == len(weights_of(ours)) == 4
    task = other.open(0)
    ours.forget(task.ids, task.graph, known_as=task.ids)
    assert ours.statistics_.counts_[2:].tolist() == [0, 0]
    gram = ours.statistics_.state()["gram"]
    torch.testing.assert_close(gram, alone["gram"], atol=1e-5, rtol=1e-5)


def test_merging_and_forgetting_without_what_they_need_is_refused() -> None:
    task = task_of(0)
    learner, fresh, stranger = learner_of(), learner_of(), learner_of(seed=1)
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.merge(fresh)
    learner.fit_task(task)
    stranger.fit_task(task)
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.merge(fresh)
    with pytest.raises(ConfigurationError, match="the same topology, seed, width"):
        learner.merge(stranger)
    with pytest.raises(ConfigurationError, match="set ledger=true"):
        learner.forget(torch.tensor([0]), task.graph)
    keeping = learner_of(ledger=True)
    keeping.fit_task(task)
    with pytest.raises(ConfigurationError, match="node 36 is not there"):
        keeping.forget(torch.tensor([*task.train.tolist(), 36]), task.graph)
    assert int(keeping.statistics_.counts_.sum()) == len(task.train)
    assert len(keeping.ledger_.part("train")) == len(task.train)


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
def test_refreshed_statistics_are_those_of_the_final_graph(
    weights: Any, small_graph: Graph
) -> None:
    stream = GraphStream(small_graph, edges="all")
    expected = from_scratch(stream, weights=weights)
    refreshed = learned(stream, weights=weights, refresh="embeddings")
    assert_same(refreshed.statistics_, expected.statistics_, 1e-5)
    assert_same(refreshed.validation_, expected.validation_, 1e-5)
    stale = learned(stream, weights=weights)
    with pytest.raises(AssertionError):
        assert_same(stale.statistics_, expected.statistics_, 1e-2)


def test_classes_that_come_back_are_refreshed_too(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, by="blurred", tasks=4, edges="all")
    refreshed = learned(stream, weights="equal", refresh="embeddings")
    assert_same(refreshed.statistics_, from_scratch(stream, weights="equal").statistics_, 1e-5)


def test_only_the_border_is_computed_anew() -> None:
    stream = GraphStream(path_in_tasks(), edges="all")
    learner = learned(stream, refresh="embeddings")
    # When 20 arrives, 19 gets another degree, and 17 and 18 look at it from two hops; so at 40.
    assert learner.growing_.recomputed == 6
    assert learner.growing_.standing == 17 + 37
    assert_same(learner.statistics_, from_scratch(stream).statistics_, 1e-5)


def test_forgetting_follows_what_was_refreshed() -> None:
    stream = GraphStream(path_in_tasks(), edges="all")
    learner = learned(stream, refresh="embeddings")
    gone = torch.arange(15, 45)
    learner.forget(gone, stream.union_graph(2))
    task = stream.open(2, cumulative=True)
    never = learner_of()
    never.fit_task(only(task, "train", ~torch.isin(task.train, gone)))
    assert_same(learner.statistics_, never.statistics_, 1e-5)


def test_without_the_graph_nothing_can_be_refreshed(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="within")
    with pytest.raises(ConfigurationError, match="edges='all', not 'within'"):
        learned(stream, refresh="embeddings")


@pytest.mark.parametrize(
    "options", [{"refresh": "embeddings"}, {"rank": 6}, {"regularisation": 0.1}]
)
def test_a_restored_learner_goes_on(options: dict[str, Any], small_graph: Graph) -> None:
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


# ------------------------------------------------------------------ what it holds and says


def test_usage_counts_statistics_and_the_ledger() -> None:
    task = task_of(0)
    triangle, sums = 24 * 25 // 2, 4 * 24
    for options, parts in (({"regularisation": 0.1}, 1), ({}, 2)):
        plain, keeping = learner_of(**options), learner_of(ledger=True, **options)
        for learner in (plain, keeping):
            learner.fit_task(task)
            assert learner.usage.statistics == learner.usage.floats == parts * (triangle + sums)
        entries = len(task.train) + (parts == 2) * len(task.validation)
        assert keeping.usage.bytes - plain.usage.bytes == 20 * entries


def test_novelty_is_what_the_best_score_lacks() -> None:
    task = task_of(0)
    learner = learner_of()
    learner.fit_task(task)
    nodes = torch.arange(5)
    embeddings = learner.backbone.prepare(task.graph)[:5]
    scores = learner.backbone.expand(embeddings) @ weights_of(learner).t()
    torch.testing.assert_close(learner.novelty(task.graph, nodes), 1 - scores.amax(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": PDGNN()}, "use backbone 'random-features', not 'pdgnn'"),
        ({"regularisation": -1.0}, "regularisation must be a number of at least 0.0, not -1.0"),
        ({"weights": "none"}, "unknown weights 'none'"),
        ({"refresh": "all"}, "unknown refresh 'all'"),
        ({"rank": 0}, "rank must be an integer of at least 1, not 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        learner_of(**options)


def test_learners_that_centre_on_their_own_first_graph_are_not_merged(small_graph: Graph) -> None:
    stream = GraphStream(small_graph)
    learners = []
    for index in (0, 1):
        backbone = RandomFeatures(width=16, centred=True)
        trainer = Trainer(device="cpu")
        learner = Analytic(backbone=backbone, trainer=trainer, generator=seeded(0, "learner"))
        learner.fit_task(stream.open(index))
        learners.append(learner)
    with pytest.raises(ConfigurationError, match="not centred"):
        learners[0].merge(learners[1])
