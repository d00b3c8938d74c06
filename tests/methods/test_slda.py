"""Discriminant analysis in a stream: by hand, and however its nodes came and went."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph
from evergraph.methods import OCGL, SLDA, Analytic, slda
from evergraph.methods.slda import within_covariance
from evergraph.nn import LinearHead, RandomFeatures, UntrainedGCN
from evergraph.streams import GraphStream, Task
from evergraph.topology import Reservoir
from evergraph.training import Trainer


def learner_of(*, seed: int = 0, **options: Any) -> SLDA:
    return SLDA(trainer=Trainer(device="cpu"), generator=seeded(seed, "learner"), **options)


def task_of(seed: int, nodes: int = 36, classes: int = 4) -> Task:
    """All of a small random graph in one task."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % classes
    graph = Graph.from_edges(
        torch.randint(nodes, (2, 2 * nodes), generator=generator),
        features=torch.randn(nodes, 4, generator=generator) + torch.eye(4)[labels],
        labels=labels,
        undirected=True,
    )
    return GraphStream(graph, classes_per_task=4).open(0)


def head_of(learner: SLDA) -> tuple[Tensor, Tensor]:
    learner.solve()
    out = learner.backbone.head.out
    return out.weight.data, out.bias.data


def lonely_six() -> Graph:
    """Six nodes without edges, so that an embedding is the node's own two features."""
    features = [[0.0, 0.0], [4.0, 0.0], [2.0, 0.0], [0.0, 1.0], [4.0, 1.0], [2.0, 1.0]]
    return Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long),
        features=torch.tensor(features),
        labels=torch.tensor([0, 0, 0, 1, 1, 1]),
    )


def by_hand() -> SLDA:
    """Learned from nodes 0, 1, 3 and 4 of ``lonely_six``.

    μ_0 = (2, 0), μ_1 = (2, 1); Σ = diag(4, 0) and the λ of the second axis is what shrinkage adds:
    with 0.5 x the mean diagonal 2 it is 1, so W = diag(1/5, 1).
    """
    task = GraphStream(lonely_six(), classes_per_task=2).open(0)
    nodes = torch.tensor([0, 1, 3, 4])
    task = replace(task, train=nodes, train_labels=torch.tensor([0, 0, 1, 1]))
    learner = learner_of(shrinkage=0.5, backbone=LinearHead(scaling="none"))
    learner.fit_task(task)
    return learner


def test_by_hand_on_six_nodes():
    weights, offsets = head_of(by_hand())
    # W μ_0 = (0.4, 0), μ_0ᵀ W μ_0 = 0.8; W μ_1 = (0.4, 1), μ_1ᵀ W μ_1 = 0.8 + 1
    torch.testing.assert_close(weights, torch.tensor([[0.4, 0.0], [0.4, 1.0]]))
    torch.testing.assert_close(offsets, torch.tensor([-0.4, -0.9]))
    scores = by_hand().logits(lonely_six(), torch.tensor([5]))  # (2, 1)
    torch.testing.assert_close(scores, torch.tensor([[0.4, 0.9]]))


def test_the_covariance_of_three_nodes_by_hand():
    statistics = ClassStatistics(2)
    rows = torch.tensor([[1.0, 0.0], [3.0, 2.0], [7.0, 5.0]])
    statistics.add(rows, torch.tensor([0, 0, 2]), torch.tensor([1.0, 1.0, 2.0]))
    matrix, means = within_covariance(statistics)
    assert means.t().tolist() == [[2.0, 1.0], [0.0, 0.0], [7.0, 5.0]]
    # Of class 0 twice (±1, ±1), of class 2 nothing; over a mass of 4.
    assert matrix.tril().tolist() == [[0.5, 0.0], [0.5, 0.5]]


def test_scores_are_log_ratios_of_gaussians():
    task = task_of(3)
    learner = learner_of(weights="equal")
    learner.fit_task(task)
    covariance, means = within_covariance(learner.statistics_)
    covariance = covariance.tril() + covariance.tril(-1).t()
    covariance.diagonal().add_(0.1 * float(covariance.diagonal().mean()))
    embeddings = learner.backbone.prepare(task.graph).double()
    densities = [
        torch.distributions.MultivariateNormal(mean, covariance).log_prob(embeddings)
        for mean in means.t()
    ]
    expected = torch.stack(densities, 1).softmax(1).float()
    found = learner.logits(task.graph, torch.arange(36)).softmax(1)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_without_the_covariance_it_is_lost(monkeypatch):
    """Classes differ along one axis a little, and nodes along the other a lot."""
    generator = seeded(0, "features")
    labels = torch.arange(400) % 2
    features = torch.randn(400, 2, generator=generator) * torch.tensor([20.0, 0.1])
    features[:, 1] += labels
    graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.long), features=features, labels=labels)

    def accuracy():
        learner = learner_of(shrinkage=0.0, backbone=LinearHead(scaling="none"))
        reports = list(learn_stream(learner, GraphStream(graph)))
        return reports[-1].rows["local"]["balanced"][0]

    assert accuracy() > 0.99
    covariance = slda.within_covariance
    monkeypatch.setattr(
        slda, "within_covariance", lambda s: (torch.eye(2).double(), covariance(s)[1])
    )
    assert accuracy() < 0.8


def test_what_it_keeps_and_how_unsure_it_is():
    task = task_of(0)
    learner = learner_of()
    learner.fit_task(task)
    assert learner.usage.statistics == 4 * 5 // 2 + 4 * 4  # Σ's triangle and four sums
    nodes = torch.arange(5)
    found = learner.novelty(task.graph, nodes)
    torch.testing.assert_close(found, 1 - learner.predict_proba(task.graph, nodes).amax(1))


def test_other_methods_are_not_merged():
    task = task_of(0)
    ours, near = learner_of(), learner_of(backbone=LinearHead(scaling="none"))
    ridge = Analytic(
        backbone=RandomFeatures(width=4), trainer=Trainer(device="cpu"), generator=seeded(0)
    )
    for learner in (ours, near, ridge):
        learner.fit_task(task)
    for one, other in ((ours, near), (ours, ridge), (ridge, ours)):
        with pytest.raises(ConfigurationError, match="needs a learner of the same method"):
            one.merge(other)


def ocgl_of(**backbone: Any) -> OCGL:
    return OCGL(
        backbone=UntrainedGCN(**({"dims": 6} | backbone)),
        trainer=Trainer(device="cpu"),
        generator=seeded(0, "learner"),
    )


def synthetic_task(seed: int, nodes: int = 60) -> Task:
    """All of a small graph in one task."""
    graph = load("synthetic", nodes=nodes, classes=3, features=5, seed=seed)
    return GraphStream(graph, classes_per_task=3).open(0)


def only(task: Task, keep: Tensor) -> Task:
    return replace(task, train=task.train[keep], train_labels=task.train_labels[keep])


def test_the_network_on_a_pair_by_hand(monkeypatch):
    pair = Graph.from_edges(
        torch.tensor([[0], [1]]),
        features=torch.tensor([[1.0], [3.0]]),
        labels=torch.tensor([0, 1]),
        undirected=True,
    )
    two = torch.tensor([[2.0]])
    monkeypatch.setattr(Reservoir, "weights", lambda *given: (torch.full((1, 1), 99.0), two))
    model = UntrainedGCN(hops=2, dims=1, scaling="none")
    first = torch.tensor(4.0).tanh()  # Â averages the two: 2 · (1 + 3) / 2
    second = (2 * first).tanh()
    expected = torch.stack([first, second]).expand(2, 2)
    torch.testing.assert_close(model.prepare(pair), expected)


@settings(max_examples=8)
@given(seed=st.integers(0, 1000), size=st.integers(1, 20), data=st.randoms())
def test_neither_batches_nor_their_order_matter(seed, size, data):
    task = synthetic_task(seed)
    places = [*range(len(task.train))]
    data.shuffle(places)
    whole, batched = ocgl_of(), ocgl_of()
    whole.fit_task(task)
    for batch in torch.tensor(places).split(size):
        batched.fit_task(only(task, batch))
    assert batched.usage == whole.usage
    nodes = torch.arange(task.graph.num_nodes)
    ours, theirs = (one.predict_proba(task.graph, nodes) for one in (batched, whole))
    torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=5e-3)
