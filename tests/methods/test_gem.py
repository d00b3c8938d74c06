"""Gradients that harm no earlier task."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.graphs import Graph
from evergraph.memory import SubgraphMemory
from evergraph.methods.replay import project
from evergraph.nn import GCN, PDGNN
from evergraph.streams import GraphStream
from evergraph.topology import Identity
from evergraph.training.trainer import EVERYTHING


def test_a_gradient_that_harms_nobody_is_left_alone():
    gradient = torch.tensor([1.0, 2.0])
    assert project(gradient, torch.tensor([[1.0, 0.0], [0.0, 1.0]])).equal(gradient)


def test_projection_by_hand():
    """Onto the half-plane x ≥ 0 the nearest point of (-1, 2) is (0, 2)."""
    found = project(torch.tensor([-1.0, 2.0]), torch.tensor([[3.0, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([0.0, 2.0]))
    corner = project(torch.tensor([-1.0, -2.0]), torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(corner, torch.zeros(2))


@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 6), size=st.integers(1, 30))
def test_the_projection_is_the_nearest_feasible_point(seed, tasks, size):
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


@given(seed=st.integers(0, 10_000), margin=st.floats(0.01, 2.0))
def test_a_margin_gives_every_earlier_task_at_least_that_weight(seed, margin):
    generator = torch.Generator().manual_seed(seed)
    gradient = torch.randn(12, generator=generator)
    old = torch.randn(3, 12, generator=generator)
    found = project(gradient, old, margin=margin)
    weights = torch.linalg.lstsq(old.t(), (found - gradient)[:, None]).solution[:, 0]
    assert float(weights.min()) >= margin - 1e-3
    assert float((old @ found).min()) >= -1e-2


@pytest.mark.parametrize("name", ["gem", "a-gem"])
@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_steps_harm_no_stored_task(make, small_graph, name, setting):
    learner = make(
        name,
        backbone=GCN(hidden=8),
        epochs=6,
        lr=0.03,
        memory=SubgraphMemory(budget=10),
        **({"margin": 0.0} if name == "gem" else {"sample": 1000}),
    )
    stream = GraphStream(small_graph, setting=setting)
    learner.fit_task(stream.open(0))
    learner.fit_task(stream.open(1))
    learner.begin_task(stream.open(2))
    learner.loss(EVERYTHING).backward()
    before = learner.gradient()
    learner.adjust_gradients()
    after = learner.gradient()
    stored = learner._stored
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


UNEQUAL = (8, 3, 3, 3, 3, 3)  # nodes of each class; 6, 1, 1, 1, 1 and 1 to train on


def hindsight(make: Any, *, setting: Any, margin: float = 0.0) -> Any:
    """Return a linear GEM without a weight in it at its third task, everything stored.

    Node v has the features e_y of its class y. Of class 0 six nodes are stored, of classes 1, 2
    and 3 one each: nine in all, seven of task 0 and two of task 1.
    """
    labels = torch.arange(6).repeat_interleave(torch.tensor(UNEQUAL))
    graph = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long), features=torch.eye(6)[labels], labels=labels
    )
    plain = PDGNN(topology=Identity(), hidden=(), bias=False, dropout=0.0, scaling="none")
    learner = make("gem", backbone=plain, margin=margin)
    stream = GraphStream(graph, setting=setting)
    for index in range(2):
        learner.fit_task(stream.open(index))
    learner.begin_task(stream.open(2))
    (weights,) = learner.named_parameters().values()  # [classes, features]
    with torch.no_grad():
        weights.zero_()
    return learner


@pytest.mark.parametrize(("setting", "chance"), [("class-il", 1 / 6), ("task-il", 1 / 2)])
def test_an_old_gradient_is_of_its_weighted_mean_loss(make, setting, chance):
    """Without weights every class is equally likely: ∂l(e_y)/∂W_ky = chance - [k = y].

    Both classes of a task count half, however many nodes are stored of either or of other tasks.
    """
    found = hindsight(make, setting=setting)._old_gradients().reshape(2, 6, 6)
    for task in range(2):
        own = slice(2 * task, 2 * task + 2)
        wanted = torch.zeros(6, 6)
        asked = slice(None) if setting == "class-il" else own
        wanted[asked, own] = chance / 2
        wanted[range(2 * task, 2 * task + 2), range(2 * task, 2 * task + 2)] -= 1 / 2
        torch.testing.assert_close(found[task], wanted)


def test_a_step_that_harms_one_old_task_and_helps_another_is_bent(make):
    """g_0 and g_1 have no feature in common: only what goes against g_1 is taken off."""
    learner = hindsight(make, setting="task-il")
    helped, harmed = learner._old_gradients()
    learner.set_gradient(2 * helped - 3 * harmed)
    learner.adjust_gradients()
    torch.testing.assert_close(learner.gradient(), 2 * helped)
