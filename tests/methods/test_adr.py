"""Layers merged by ridge regression, and a head on what the merged ones make."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.ridge import balanced_ridge
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.methods import ADR
from evergraph.methods.adr import LayerSums
from evergraph.methods.analytic import SHARPNESS
from evergraph.nn import GCN
from evergraph.streams import GraphStream


def test_two_maps_of_one_number_by_hand():
    sums = LayerSums(1, 1)
    sums.add(torch.tensor([[1.0]]), torch.tensor([[1.0]]))
    assert sums.merged(0.0).item() == pytest.approx(1.0)
    sums.add(torch.tensor([[2.0]]), torch.tensor([[6.0]]))  # three times as much, and heard four
    assert sums.merged(0.0).item() == pytest.approx(13 / 5)
    assert sums.merged(1.0).item() == pytest.approx(13 / 10)  # λ = 5, the mean diagonal
    assert sums.usage.statistics == 3  # G, C and a sum
    again = LayerSums(1, 1)
    again.restore(sums.state())
    assert again.merged(1.0).equal(sums.merged(1.0))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 1000))
def test_merged_is_the_ridge_solution_of_all_tasks_at_once(sizes, seed):
    generator = seeded(seed, "pairs")
    pairs = [
        (x, x @ torch.randn(4, 3, generator=generator))
        for x in (torch.randn(n, 4, generator=generator) for n in sizes)
    ]
    forwards, backwards = LayerSums(4, 3), LayerSums(4, 3)
    for pair, other in zip(pairs, reversed(pairs), strict=True):
        forwards.add(*pair)
        backwards.add(*other)
    x, z = (torch.cat(part).double() for part in zip(*pairs, strict=True))
    ridge = 0.1 * x.square().sum() / 4
    expected = torch.linalg.solve(x.t() @ x + ridge * torch.eye(4), x.t() @ z).float()
    torch.testing.assert_close(forwards.merged(0.1), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(backwards.merged(0.1), expected, atol=1e-4, rtol=1e-4)


def test_layers_and_head_are_those_of_the_formulas(make, two_pairs):
    learner = make("adr", backbone=GCN(hidden=3), merging=0.1, regularisation=0.1)
    gram, products = torch.zeros(5, 5).double(), torch.zeros(5, 3).double()
    statistics = ClassStatistics(4)
    for task in GraphStream(two_pairs):
        learner.trainer.fit(_Stopped(learner), task)  # as trained, before anything is merged
        inputs = learner.backbone.prepare(task.graph)
        smoother, ones = inputs.adjacency.matrix.to_dense(), torch.ones(len(inputs.raw), 1)
        gathered = torch.cat([smoother @ inputs.raw, ones], 1)
        x = gathered[task.train].double()
        own = learner.backbone.convolutions[0].linear.joined().double()
        gram, products = gram + x.t() @ x, products + x.t() @ x @ own
        learner.end_task(task)
        ridge = 0.1 * gram.diagonal().mean() * torch.eye(5)
        merged = learner.backbone.convolutions[0].linear.joined()
        expected = torch.linalg.solve(gram + ridge, products).float()
        torch.testing.assert_close(merged, expected, atol=1e-4, rtol=1e-3)
        entering = torch.cat([smoother @ torch.relu(gathered @ merged), ones], 1)[task.train]
        statistics.add(entering, task.train_labels, torch.ones(len(task.train)))
    head = SHARPNESS * balanced_ridge(statistics, 0.1).float()
    found = learner.backbone.convolutions[-1].linear.joined()
    torch.testing.assert_close(found, head, atol=1e-3, rtol=1e-2)


class _Stopped:
    """A learner whose tasks do not end."""

    def __init__(self, learner: ADR) -> None:
        self.learner = learner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)

    def end_task(self, task: Any) -> None:
        """Leave the layers as training made them."""


@torch.enable_grad()
def _fit(learner: ADR, stream: GraphStream, *tasks: int) -> None:
    for index in tasks:
        learner.fit_task(stream.open(index))


@torch.no_grad()
def drift(make: Any, graph: Graph) -> float:
    """Return how far features of the first task have moved when all are learned."""
    stream = GraphStream(graph)
    learner = make("adr", epochs=40, lr=0.05, backbone=GCN(hidden=16))
    first = stream.local_graph(0)
    _fit(learner, stream, 0)
    before = learner.backbone.hidden_states(learner.backbone.prepare(first))
    _fit(learner, stream, 1, 2)
    after = learner.backbone.hidden_states(learner.backbone.prepare(first))
    return float((after - before).norm() / before.norm())


def test_without_the_sums_of_old_tasks_their_features_drift(make, small_graph, monkeypatch):
    held = drift(make, small_graph)
    add = LayerSums.add

    def newest(self, *pair):
        self.__init__(*self.products_.shape)
        add(self, *pair)

    monkeypatch.setattr(LayerSums, "add", newest)
    let_go = drift(make, small_graph)
    assert held < 0.5 * let_go, (held, let_go)


def test_a_task_begins_with_a_head_drawn_anew_and_no_momentum(make, two_pairs):
    stream = GraphStream(two_pairs)
    learner = make("adr", backbone=GCN(hidden=3))
    _fit(learner, stream, 0)
    hidden, solved = (layer.linear for layer in learner.backbone.convolutions)
    merged, known = hidden.joined().clone(), solved.joined().clone()
    assert float(known.abs().max()) > 3**-0.5  # so it cannot have been drawn
    assert learner.trainer.moments_
    learner.begin_task(stream.open(1))
    drawn = learner.backbone.convolutions[-1].linear.joined()
    assert drawn.shape == (4, 4)
    assert float(drawn.abs().max()) <= 3**-0.5  # uniform in ±1/√inputs, for old classes too
    assert learner.backbone.convolutions[0].linear.joined().equal(merged)  # as they are
    assert not learner.trainer.moments_


def test_what_is_kept_is_counted_and_is_no_node(make, two_pairs):
    learner = make("adr", epochs=1, backbone=GCN(hidden=3))
    kept = []
    for task in GraphStream(two_pairs):
        learner.fit_task(task)
        kept.append(learner.usage.statistics)
    of_layer = 5 * 6 // 2 + 5 + 5 * 3  # G's triangle, a sum, C
    assert kept == [of_layer + 4 * 5 // 2 + 4 * classes for classes in (2, 4)]


def test_how_unsure_it_is(make, two_pairs):
    learner = make("adr", epochs=1, backbone=GCN(hidden=3))
    learner.fit_task(GraphStream(two_pairs).open(0))
    nodes = torch.arange(4)
    best = learner.logits(two_pairs, nodes).amax(1)
    torch.testing.assert_close(learner.novelty(two_pairs, nodes), 1 - best / 10)
