"""Task prediction by profiles, and heads that stay as they are."""

import logging
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.graphs.csr import as_csr
from evergraph.methods import TAAM, TPP
from evergraph.methods.tpp import nearest
from evergraph.nn import PDGNN, Modulated
from evergraph.nn.modulated import ModulatedHead
from evergraph.streams import GraphStream
from evergraph.topology import SGC

NO_EDGES = torch.empty(2, 0, dtype=torch.long)


def learned(make: Any, graph: Graph, name: str = "tpp", **stream: Any) -> tuple[TPP, GraphStream]:
    learner = make(name, epochs=60, backbone=PDGNN(hidden=(3,), dropout=0.0))
    tasks = GraphStream(graph, **stream)
    for task in tasks:
        learner.fit_task(task)
    return learner, tasks


def of_steps(steps: int) -> TPP:
    return TPP(steps=steps, generator=seeded(0))


def lonely(rows: list[list[float]]) -> Graph:
    features = torch.tensor(rows)
    return Graph.from_edges(NO_EDGES, features=features, labels=torch.zeros(len(rows)).long())


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to 9 nodes, some edges one way only, dense or sparse features."""
    nodes, seed = draw(st.integers(2, 9)), draw(st.integers(0, 10**6))
    generator = seeded(seed, "graph")
    edges = torch.randint(nodes, (2, draw(st.integers(0, 20))), generator=generator)
    features = torch.randn(nodes, 5, generator=generator)
    features = as_csr(features.relu()) if draw(st.booleans()) else features
    return Graph.from_edges(edges, features=features, labels=torch.zeros(nodes).long())


def test_the_profile_of_a_star_by_hand():
    star = Graph.from_edges(
        torch.tensor([[0, 0, 0], [1, 2, 3]]),
        features=torch.tensor([[4.0], [8**0.5], [0.0], [0.0]]),
        labels=torch.zeros(4).long(),
        undirected=True,
    )
    # d = 4, 2, 2, 2. Centre: 4/4 + √8/√8 = 2, weight 1/2. A leaf: √8/2 + 4/√8 = √8, weight 1/√2.
    nodes = torch.tensor([0, 1])
    learner = of_steps(1)
    assert learner.profile(star, nodes).tolist() == pytest.approx([(1 + 2) / 2])
    assert of_steps(0).profile(star, nodes).tolist() == pytest.approx([(2 + 2) / 2])
    learner.profiles_ = torch.tensor([[1.0], [-3.0]])
    found = learner.likeness(star, nodes)
    torch.testing.assert_close(found, torch.tensor([[1.0, -3.0], [2.0, -6.0]]))


def test_the_profile_of_a_weighted_pair_by_hand():
    pair = Graph.from_edges(
        torch.tensor([[0], [1]]),
        features=torch.tensor([[1.0], [3.0]]),
        labels=torch.zeros(2).long(),
        undirected=True,
        weights=torch.tensor([3.0]),
    )
    # d = 4 and 4, so Â is 1/4 and 3/4: the two are 10/4 and 6/4, each divided by √4.
    assert of_steps(1).profile(pair, torch.tensor([0, 1])).tolist() == pytest.approx([1.0])


@given(graphs(), st.integers(0, 3), st.integers(1, 4))
def test_likeness_is_the_product_of_profiles_and_its_mean_that_of_a_common_one(graph, steps, tasks):
    learner, nodes = of_steps(steps), torch.arange(graph.num_nodes)
    learner.profiles_ = profiles = torch.randn(tasks, 5, generator=seeded(tasks, "profiles"))
    alone = torch.stack([learner.profile(graph, node[None]) for node in nodes])
    found = learner.likeness(graph, nodes)
    torch.testing.assert_close(found, alone @ profiles.t(), atol=1e-5, rtol=1e-4)
    common = learner.profile(graph, nodes)
    torch.testing.assert_close(found.mean(0), profiles @ common, atol=1e-5, rtol=1e-4)


@given(st.integers(0, 10**6))
def test_nearest_is_the_smallest_distance_and_the_smallest_angle(seed):
    points, profiles = (
        torch.randn(7, 3, generator=seeded(seed)),
        torch.randn(4, 3, generator=seeded(seed, "p")),
    )
    products = points @ profiles.t()
    distances = torch.cdist(points, profiles)
    chosen = nearest(products, profiles, distance="euclidean")[:, None]
    torch.testing.assert_close(distances.gather(1, chosen)[:, 0], distances.min(1).values)
    cosines = torch.nn.functional.cosine_similarity(points[:, None], profiles[None], dim=2)
    chosen = nearest(products, profiles, distance="angle")[:, None]
    torch.testing.assert_close(cosines.gather(1, chosen)[:, 0], cosines.max(1).values)


def test_profiles_are_those_of_the_training_nodes(make, two_pairs):
    learner = make("tpp", epochs=1)
    for task in GraphStream(two_pairs):
        learner.fit_task(task)
        rows = SGC(hops=2).encode(task.graph)[task.train] / 3**0.5  # a ring: two neighbours, itself
        torch.testing.assert_close(learner.profiles_[task.index], rows.mean(0))


def test_without_profiles_the_tasks_cannot_be_told_apart(make, two_pairs):
    learner, stream = learned(make, two_pairs)
    exam = stream.exams(1, "global")[0]
    assert learner.predict(exam.graph, exam.nodes).equal(exam.labels)
    learner.profiles_ = torch.zeros_like(learner.profiles_)
    blind = learner.predict(exam.graph, exam.nodes)
    assert (blind < 2).all()  # all of them of the first task


def test_pooling_is_right_where_a_single_node_is_wrong(make, two_pairs):
    # Profiles are near (1, 1, 0, 0) and (0, 0, 1, 1). The third node alone looks like the second
    # task, but not among the others, all of the first; 0.4 of feature 1 then makes it class 1.
    exam = lonely([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0.4, 0.6, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    nodes, tasks = torch.arange(5), torch.tensor([0, 0, 0, 1, 1])
    single, _ = learned(make, two_pairs)
    pooled, _ = learned(make, two_pairs, "tpp-per-test-set")
    assert single.predict(exam, nodes, tasks).tolist() == [0, 1, 2, 3, 2]
    assert pooled.predict(exam, nodes, tasks).tolist() == [0, 1, 1, 3, 2]
    mixed = torch.tensor([3, 0, 4, 2, 1])  # answers come back in the order asked
    assert pooled.answer(exam, mixed, tasks[mixed]).classes.tolist() == [3, 0, 2, 1, 1]
    assert pooled.predict(exam, nodes[2:]).tolist()[0] == 2  # without tasks: one test set
    assert pooled.predict_proba(exam, nodes, tasks)[2, :2].sum() == pytest.approx(1.0)


def test_pooling_says_once_that_it_is_no_class_il(make, two_pairs, caplog):
    with caplog.at_level(logging.WARNING):
        learned(make, two_pairs)
        assert not caplog.records
        learned(make, two_pairs, "tpp-per-test-set")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "tpp-per-test-set pools the test nodes of each task: do not compare its class-il "
            "accuracy with that of methods that classify node by node",
        )
    ]


def test_a_head_never_changes_later(make, two_pairs):
    learner = make("tpp")
    stream = GraphStream(two_pairs, setting="task-il")
    exam = stream.exams(0, "local")[0]
    learner.fit_task(stream.open(0))
    head = {name: value.clone() for name, value in learner.heads_[0].state_dict().items()}
    before = learner.predict_proba(exam.graph, exam.nodes, exam.tasks)
    learner.fit_task(stream.open(1))
    assert learner.heads_[1] is not learner.heads_[0]
    for name, value in learner.heads_[0].state_dict().items():
        assert value.equal(head[name]), name
    after = learner.predict_proba(exam.graph, exam.nodes, exam.tasks)
    torch.testing.assert_close(after[:, :2], before, atol=1e-5, rtol=1e-5)


def test_scores_are_the_chosen_heads_and_the_rest_is_low(make, two_pairs):
    learner, stream = learned(make, two_pairs)
    graph = stream.local_graph(1)
    nodes = torch.arange(graph.num_nodes)
    scores = learner.logits(graph, nodes)
    with torch.no_grad():
        own = learner.heads_[1](learner.backbone.prepare(graph))
    torch.testing.assert_close(scores[:, 2:], own)
    assert scores.isfinite().all()
    assert (scores[:, :2].amax(1) < scores[:, 2:].amax(1) - 90).all()
    torch.testing.assert_close(scores.logsumexp(1), own.logsumexp(1))


def test_classes_that_come_back_are_known_to_several_heads(make, small_graph):
    learner, stream = learned(make, small_graph, by="blurred", tasks=4, blur=1.0)
    seen = [stream.open(index).train_labels.unique() for index in range(4)]
    for classes, present in zip(learner.classes_, seen, strict=True):
        assert classes.equal(present)
    assert sum(len(classes) for classes in seen) > small_graph.num_classes
    exam = stream.exams(3, "global")[0]
    guessed, answers = (
        learner.guess_tasks(exam.graph, exam.nodes),
        learner.predict(exam.graph, exam.nodes),
    )
    assert all(answer in seen[task] for task, answer in zip(guessed, answers, strict=True))


def test_what_is_kept_is_counted(make, two_pairs):
    learner, _ = learned(make, two_pairs)
    usage = learner.usage
    assert usage.samples == 2 * 4  # a profile a task
    assert usage.models == (4 * 3 + 3) + (3 * 2 + 2)  # one head, the other is the model
    assert usage.bytes == 4 * usage.floats + 8 * 4  # and four class numbers


def modulated(make: Any, graph: Graph, **backbone: Any) -> TAAM:
    options = {"hidden": (3,), "dropout": 0.0, "pairs": 2, "rank": 2, "task_dims": 3} | backbone
    learner = make("taam", epochs=80, lr=0.05, backbone=Modulated(**options))
    for task in GraphStream(graph):
        learner.fit_task(task)
    return learner


def pair_of(first: float, second: float) -> Graph:
    return Graph.from_edges(
        torch.tensor([[0], [1]]),
        features=torch.tensor([[first], [second]]),
        labels=torch.zeros(2).long(),
        undirected=True,
    )


def test_the_prototype_of_a_pair_by_hand(make):
    learner = make("taam", steps=2, anchor=0.5)
    # Â averages 1 and 3 to 2. Z_1 = 1.5, 2.5, whose mean is 2 again; Z_2 = 1.5, 2.5.
    assert learner.profile(pair_of(1, 3), torch.tensor([0])).tolist() == pytest.approx([1.5])
    assert learner.profile(pair_of(1, 3), torch.tensor([0, 1])).tolist() == pytest.approx([2.0])
    learner.profiles_ = torch.tensor([[1.0], [-2.0]])
    found = learner.likeness(pair_of(1, 3), torch.tensor([0, 1]))
    torch.testing.assert_close(found, torch.tensor([[1.5, -3.0], [2.5, -5.0]]))


@given(st.integers(0, 1000), st.integers(0, 3), st.floats(0.0, 1.0))
def test_likeness_is_a_product_with_propagated_nodes(seed, steps, anchor):
    generator = seeded(seed, "graph")
    graph = Graph.from_edges(
        torch.randint(7, (2, 12), generator=generator),
        features=torch.randn(7, 4, generator=generator),
        labels=torch.zeros(7).long(),
    )
    learner = TAAM(steps=steps, anchor=anchor, generator=seeded(0))
    learner.profiles_ = torch.randn(3, 4, generator=generator)
    nodes = torch.arange(7)
    alone = torch.stack([learner.profile(graph, node[None]) for node in nodes])
    found = learner.likeness(graph, nodes)
    torch.testing.assert_close(found, alone @ learner.profiles_.t(), atol=1e-5, rtol=1e-4)


def test_a_modulation_by_hand():
    head = ModulatedHead(2, pairs=2, rank=1, task_dims=1, hidden=(), generator=seeded(0))
    with torch.no_grad():
        head.task.fill_(2.0)
        head.factors.weight.copy_(torch.tensor([[1.0], [0.5]]))  # A t = 2 and 1
        head.directions.copy_(torch.tensor([[1.0, 0.0, 0.0, 3.0]]))  # scales, then shifts
        head.attention.weight.copy_(torch.tensor([[0.0, 0.0], [0.0, torch.tensor(3.0).log()]]))
        # e = (1, 1): a = (1, 3) / 4, so 2 · 1/4 + 1 · 3/4 = 5/4 of U: γ = (5/4, 0), β = (0, 15/4).
        found = head.modulated(torch.tensor([[1.0, 1.0]]))
    torch.testing.assert_close(found, torch.tensor([[9 / 4, 1 + 15 / 4]]))


def test_modulation_is_trained_and_matters(make, two_pairs):
    learner = modulated(make, two_pairs)
    for head in learner.heads_:
        assert dict(head.named_parameters())["directions"].abs().max() > 0.1  # starts near 0
    nodes = torch.arange(16)
    before = learner.logits(two_pairs, nodes)
    with torch.no_grad():
        for head in learner.heads_:
            dict(head.named_parameters())["directions"].zero_()
    assert not before.allclose(learner.logits(two_pairs, nodes), atol=1e-2)


def test_a_node_chooses_among_modulations(make):
    # Classes told apart by whether two features agree: no linear classifier can, modulated or not,
    # unless nodes are modulated each in its own way.
    corners = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    labels = torch.tensor([0, 0, 1, 1]).repeat(20)
    graph = Graph.from_edges(NO_EDGES, features=corners.repeat(20, 1), labels=labels)

    def accuracy(pairs):
        learner = modulated(make, graph, hidden=(), pairs=pairs)
        found = learner.predict(graph, torch.arange(80))
        return float((found == labels).float().mean())

    assert accuracy(1) < 0.8
    assert accuracy(4) > 0.95
