"""The Fisher information and the penalty it makes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.methods import EWC
from evergraph.nn import GCN, PDGNN
from evergraph.nn.losses import masked_losses
from evergraph.streams import GraphStream
from evergraph.topology import Identity
from evergraph.training.trainer import EVERYTHING

Values = dict[str, Tensor]


def learned_first(make: Any, graph: Graph, **options: Any) -> tuple[EWC, GraphStream]:
    learner = make("ewc", backbone=GCN(hidden=3), **options)
    stream = GraphStream(graph, split=(0.5, 0.25, 0.25))
    learner.fit_task(stream.open(0))
    return learner, stream


def node_by_node(learner: EWC) -> Values:
    """The mean over training nodes of squared gradients, a backward pass a node."""
    examples = learner._examples
    scores = learner.scores(EVERYTHING)
    losses = masked_losses(scores, examples.targets, allowed=examples.allowed)
    total = {}
    for loss, weight in zip(losses, examples.weights, strict=True):
        for name, gradient in learner.gradients(loss, keep=True).items():
            total[name] = total.get(name, torch.zeros_like(gradient)) + weight * gradient**2
    return {name: value / len(losses) for name, value in total.items()}


def test_with_enough_probes_the_fisher_is_exact(make, two_pairs):
    learner, stream = learned_first(make, two_pairs)
    learner.begin_task(stream.open(1))
    expected, found = node_by_node(learner), learner.importance()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-8, rtol=1e-4)
    assert max(float(value.max()) for value in expected.values()) > 0


def test_the_fisher_of_unequal_classes_weighs_each_class_alike(make):
    """Six nodes of class 0 and two of class 1, a linear model without weights, by hand.

    Scores are 0, so a node of class y has the gradient (1/2 - [k = y]) x: a square of x²/4 in
    both rows. Features are 2 for class 0 and 4 for class 1, their squares in the mean of the
    classes (4 + 16) / 2 = 10, and in the mean of the nodes (6 · 4 + 2 · 16) / 8 = 7.
    """
    labels = torch.tensor([0] * 10 + [1] * 4)
    graph = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long),
        features=torch.tensor([2.0, 4.0])[labels, None],
        labels=labels,
    )
    plain = PDGNN(topology=Identity(), hidden=(), bias=False, dropout=0.0, scaling="none")
    learner = make("ewc", backbone=plain)
    assert learner.begin_task(GraphStream(graph).open(0)) == 6 + 2
    (weights,) = learner.named_parameters().values()
    with torch.no_grad():
        weights.zero_()
    (found,) = learner.importance().values()
    torch.testing.assert_close(found, torch.full((2, 1), 10 / 4))


def test_with_few_probes_it_is_right_on_average(make, two_pairs):
    learner, stream = learned_first(make, two_pairs, probes=2)
    learner.begin_task(stream.open(1))
    expected = node_by_node(learner)
    draws = [learner.importance() for _ in range(150)]
    for name, value in expected.items():
        mean = torch.stack([draw[name] for draw in draws]).mean(0)
        assert float((mean - value).abs().sum()) <= 0.25 * float(value.sum()) + 1e-8


def test_the_batch_fisher_is_the_square_of_the_mean_gradient(make, two_pairs):
    learner, stream = learned_first(make, two_pairs, fisher="batch")
    learner.begin_task(stream.open(1))
    learner.anchor_ = {}  # the bare loss of the task
    gradients = learner.gradients(learner.loss(EVERYTHING))
    for name, value in learner.importance().items():
        torch.testing.assert_close(value, gradients[name] ** 2)


def test_the_penalty_and_its_gradient_by_hand(make, two_pairs):
    """F (θ - θ*)² with F = 2, θ - θ* = 0.5 is 0.5 a parameter; with λ = 3 the gradient is 6."""
    learner, stream = learned_first(make, two_pairs, strength=3.0)
    learner.importance_ = {n: torch.full_like(v, 2.0) for n, v in learner.importance_.items()}
    before = {name: p.detach().clone() for name, p in learner.named_parameters().items()}
    learner.anchor_ = {name: value - 0.5 for name, value in before.items()}
    learner.begin_task(stream.open(1))  # two classes more: their rows are free
    known = sum(value.numel() for value in before.values())
    assert learner.penalty().item() == pytest.approx(0.5 * known, rel=1e-5)
    for name, gradient in learner.gradients(learner.strength * learner.penalty()).items():
        expected = torch.zeros_like(gradient)
        expected[tuple(slice(size) for size in before[name].shape)] = 6.0
        torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-5)


def test_the_loss_holds_the_penalty(make, two_pairs):
    learner, stream = learned_first(make, two_pairs, strength=7.0)
    learner.begin_task(stream.open(1))
    with torch.no_grad():
        for parameter in learner.named_parameters().values():
            parameter += 0.1
    anchors, learner.anchor_ = learner.anchor_, {}
    bare = learner.loss(EVERYTHING).item()
    learner.anchor_ = anchors
    assert learner.penalty().item() > 0
    assert learner.loss(EVERYTHING).item() == pytest.approx(bare + 7 * learner.penalty().item())


def test_one_merged_anchor_pulls_as_one_anchor_a_task_does(make, two_pairs):
    """Σ_τ F_τ (θ - θ_τ)² and F (θ - θ̄)² have the same gradient everywhere."""
    learner = make("ewc", backbone=GCN(hidden=3), strength=0.0)
    stream = GraphStream(two_pairs, classes_per_task=1, split=(0.5, 0.25, 0.25))
    separate = []
    merge = learner.consolidate

    def remember(importance):
        separate.append((importance, learner.parameters_now()))
        merge(importance)

    learner.consolidate = remember
    for task in stream:
        learner.fit_task(task)
    parameters = learner.named_parameters()
    with torch.no_grad():
        for parameter in parameters.values():
            parameter += 0.3
    merged = learner.gradients(learner.penalty())
    for name, parameter in parameters.items():
        expected = torch.zeros_like(parameter)
        for importance, anchor in separate:
            rows = tuple(slice(size) for size in anchor[name].shape)
            expected[rows] += 2 * importance[name] * (parameter.detach()[rows] - anchor[name])
        torch.testing.assert_close(merged[name], expected, atol=1e-7, rtol=1e-3)


def test_online_keeps_the_latest_anchor_and_fades_the_fisher(make, two_pairs):
    learner, stream = learned_first(make, two_pairs, anchors="online", decay=0.5)
    first = {name: value.clone() for name, value in learner.importance_.items()}
    seen = []
    measure = learner.importance
    learner.importance = lambda: seen.append(measure()) or seen[-1]
    learner.fit_task(stream.open(1))
    for name, value in learner.importance_.items():
        rows = tuple(slice(size) for size in first[name].shape)
        torch.testing.assert_close(value[rows], 0.5 * first[name] + seen[0][name][rows])
        assert learner.anchor_[name].equal(learner.named_parameters()[name].detach())
