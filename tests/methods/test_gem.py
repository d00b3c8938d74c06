"""Gradients that harm no earlier task."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graphs import Graph
from evergraph.memory import SubgraphMemory
from evergraph.methods.gem import project
from evergraph.nn import GCN
from evergraph.streams import GraphStream
from evergraph.training.batches import EVERYTHING


def test_a_gradient_that_harms_nobody_is_left_alone() -> None:
    gradient = torch.tensor([1.0, 2.0])
    assert project(gradient, torch.tensor([[1.0, 0.0], [0.0, 1.0]])).equal(gradient)


def test_projection_by_hand() -> None:
    """Onto the half-plane x ≥ 0 the nearest point of (-1, 2) is (0, 2)."""
    found = project(torch.tensor([-1.0, 2.0]), torch.tensor([[3.0, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([0.0, 2.0]))
    corner = project(torch.tensor([-1.0, -2.0]), torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(corner, torch.zeros(2))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 6), size=st.integers(1, 30))
def test_the_projection_meets_every_constraint_and_is_the_nearest_that_does(
    seed: int, tasks: int, size: int
) -> None:
    """Karush, Kuhn and Tucker: g̃ = g + Gᵀv, v ≥ 0, G g̃ ≥ 0, v · G g̃ = 0."""
    generator = torch.Generator().manual_seed(seed)
    gradient = torch.randn(size, generator=generator)
    old = torch.randn(tasks, size, generator=generator)
    if seed % 3 == 0:
        old[-1] = old[0]  # parallel gradients
    if seed % 5 == 0:
        old[0] = 0.0  # a task that no gradient comes from
    found = project(gradient, old)
    slopes = old @ found
    assert float(slopes.min()) >= -1e-3
    step = found - gradient
    weights = torch.linalg.pinv(old.t().double()) @ step.double()
    torch.testing.assert_close(old.t() @ weights.float(), step, atol=1e-3, rtol=1e-3)
    assert float(torch.dot(step, found)) == pytest.approx(0.0, abs=1e-2)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), margin=st.floats(0.01, 2.0))
def test_a_margin_gives_every_earlier_task_at_least_that_weight(seed: int, margin: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    gradient = torch.randn(12, generator=generator)
    old = torch.randn(3, 12, generator=generator)
    found = project(gradient, old, margin=margin)
    weights = torch.linalg.lstsq(old.t(), (found - gradient)[:, None]).solution[:, 0]
    assert float(weights.min()) >= margin - 1e-3
    assert float((old @ found).min()) >= -1e-2


@pytest.mark.parametrize("name", ["gem", "a-gem"])
@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_a_step_never_points_against_what_is_stored(
    make: Any, small_graph: Graph, name: str, setting: Any
) -> None:
    learner = make(
        name, backbone=GCN(hidden=8), epochs=20, memory=SubgraphMemory(budget=10),
        **({"margin": 0.0} if name == "gem" else {"sample": 1000}),
    )  # fmt: skip
    stream = GraphStream(small_graph, setting=setting)
    learner.fit_task(stream.open(0))
    learner.fit_task(stream.open(1))
    learner.begin_task(stream.open(2))
    learner.loss(EVERYTHING).backward()
    before = learner.gradient()
    learner.adjust_gradients()
    after = learner.gradient()
    stored = learner._stored
    assert stored is not None
    scores = learner.backbone(stored.inputs, stored.rows)
    tasks = [torch.arange(len(stored))]
    if name == "gem":
        tasks = [(learner._tasks == task).nonzero().flatten() for task in (0, 1)]
    for rows in tasks:
        old = learner.gradient_of(learner.stored_loss(scores[rows], rows), keep=True)
        allowed = -1e-4 * float(old.norm()) * float(before.norm())
        assert float(torch.dot(after, old)) >= allowed
    if setting == "class-il":  # new classes push old ones down: there was something to bend
        assert not after.equal(before)


def test_gem_counts_its_gradients_and_its_nodes(make: Any, small_graph: Graph) -> None:
    learner = make("gem", backbone=GCN(hidden=8), epochs=1, memory=SubgraphMemory(budget=3))
    stream = GraphStream(small_graph)
    for index in range(2):
        learner.fit_task(stream.open(index))
    values = sum(p.numel() for p in learner.named_parameters().values())
    assert learner.usage.gradients == 2 * values
    assert learner.usage.samples == 4 * 3 * small_graph.num_features
    assert learner.usage.floats == learner.usage.gradients + learner.usage.samples
