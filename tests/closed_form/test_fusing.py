"""Scores of several heads in one: what is minimised, with which penalties, and of which heads."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import fusing
from evergraph.closed_form.fusing import (
    FEWEST_ANSWERS,
    FLAT,
    PRIOR,
    SHARPNESS,
    Fused,
    fused_weights,
    lead_over_chance,
    mixture_loss,
)

seeds = st.integers(0, 10_000)


def problem(
    seed: int, *, nodes: int = 40, classes: int = 3, heads: int = 4, strength: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return scores that tell a little of the class, some heads more than others."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % classes
    labels = labels[torch.randperm(nodes, generator=draw)]
    noise = torch.randn(nodes, classes, heads, generator=draw) * 0.3
    told = torch.rand(heads, generator=draw) * strength
    return noise + torch.eye(classes)[labels][:, :, None] * told, labels


def loss(
    weights: Tensor,
    scores: Tensor,
    labels: Tensor,
    allowed: Tensor | None = None,
    offsets: Tensor | float = 0.0,
) -> Tensor:
    """The class-balanced log-loss and the priors, as the docstring has them."""
    mixed = (scores.double() * weights).sum(2) + offsets
    if allowed is not None:
        mixed = mixed.masked_fill(~allowed, -torch.inf)
    each = -mixed.log_softmax(1)[torch.arange(len(labels)), labels]
    means = [each[labels == label].mean() for label in labels.unique()]
    pull = PRIOR * (weights - SHARPNESS / len(weights)).square().sum()
    pull = pull + FLAT * len(means) * torch.as_tensor(offsets).square().sum()
    return torch.stack(means).mean() + pull / (2 * len(labels))


def assert_best(
    weights: Tensor, scores: Tensor, labels: Tensor, allowed: Tensor | None = None
) -> None:
    """No slope where a weight is above 0, and none that leads down where it is 0."""
    asked = weights.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(asked, scores, labels, allowed), asked)
    assert bool((weights >= 0).all())
    assert all(abs(s) < 1e-6 for s in slope[weights > 0].tolist())
    assert all(s > -1e-6 for s in slope[weights == 0].tolist())


def test_a_head_that_favours_a_class_everywhere_counts_with_an_intercept():
    """It finds all nodes likelier of the rarer class, those of that class by far the most."""
    labels = torch.tensor([0] * 540 + [1] * 60)  # few nodes would say little about it
    likelier = torch.where(labels == 0, 3.0, 9.0)[:, None]
    scores = torch.stack([-likelier, likelier], 1)
    plain, both = (
        fused_weights(scores, labels, balanced=False, intercept=each) for each in (False, True)
    )
    assert not plain.weights.any()  # all nodes would get the same answer
    assert not plain.offsets.any()
    assert float(both.weights) > 0.1
    assert (scores.double() @ both.weights + both.offsets).argmax(1).equal(labels)


def test_one_head_by_hand():
    """One probe of two classes, scores 1 and 0: log(1 + e^-a) + PRIOR/2 (a - 10)².

    Its slope is -1/(1 + e^a) + PRIOR (a - 10), which is 0 a little above 10.
    """
    weights = fused_weights(torch.tensor([[[1.0], [0.0]]]), torch.tensor([0])).weights
    a = float(weights)
    assert 1 / (1 + math.exp(a)) == pytest.approx(PRIOR * (a - SHARPNESS), rel=1e-6)
    assert a == pytest.approx(10.00227, abs=1e-4)


def test_two_heads_by_hand():
    """Three of four probes right by the first head; the second says the opposite.

    Only d = a_1 - a_2 enters the loss: 3/4 log(1 + e^-d) + 1/4 log(1 + e^d), least at
    e^d = 3. The prior, drawn to 5 each, keeps their sum at 10: a_1 = 5 + d/2.
    """
    right = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]])
    right = torch.cat([right, right.flip(1)])  # as often of the other class
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    scores = torch.stack([right, 1 - right], dim=2)
    weights = fused_weights(scores, labels).weights
    assert float(weights.sum()) == pytest.approx(SHARPNESS, abs=1e-6)
    assert float(weights[0] - weights[1]) == pytest.approx(math.log(3), abs=0.02)
    assert_best(weights, scores, labels)


@given(seed=seeds, heads=st.integers(1, 7), strength=st.floats(-0.5, 2.0), some=st.booleans())
def test_there_is_no_way_down(seed, heads, strength, some):
    scores, labels = problem(seed, classes=4, heads=heads, strength=strength)
    if some:  # a class without probes takes no part in the mean
        scores, labels = scores[labels != 2], labels[labels != 2]
    assert_best(fused_weights(scores, labels).weights, scores, labels)


@given(seed=seeds, left=st.sampled_from([0, 1, 10]))
def test_slope_and_curvature_of_a_step_are_those_of_the_loss(seed, left):
    """Over weights and intercepts; a class without probes has none."""
    scores, labels = problem(seed, classes=4)
    stay = (labels == 2).cumsum(0).where(labels == 2, 0) <= left  # so many probes of class 2
    scores, labels = scores[stay], labels[stay]
    start = torch.full((4,), SHARPNESS / 4).double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusing, "BLOCK_VALUES", 200)  # several blocks of nodes
        made = fusing._Problem(scores.double(), labels, None, start)
    made.open = labels.unique()
    at = 3 * torch.rand(8, generator=torch.Generator().manual_seed(seed)).double()
    at[4:][~torch.isin(torch.arange(4), made.open)] = 0.0
    kept = torch.cat([torch.arange(4), 4 + made.open])
    slope, curvature = made._slope(Fused(at[:4], at[4:]))

    def lost(both: Tensor) -> Tensor:
        return loss(both[:4], scores, labels, offsets=both[4:])

    torch.testing.assert_close(made.loss(Fused(at[:4], at[4:])), lost(at))
    expected = torch.autograd.functional.hessian(lost, at)[kept][:, kept]
    torch.testing.assert_close(slope, torch.autograd.functional.jacobian(lost, at)[kept])
    torch.testing.assert_close(curvature, expected)
    both = fused_weights(scores, labels, intercept=True)
    left = torch.autograd.functional.jacobian(lost, torch.cat(both))[4:][made.open]
    assert float(left.abs().max()) < 1e-6
    assert both.offsets.count_nonzero() == len(made.open)


@given(seed=seeds)
def test_within_a_task_other_classes_do_not_count(seed):
    scores, labels = problem(seed, classes=4)
    allowed = (labels // 2)[:, None] == (torch.arange(4) // 2)
    weights = fused_weights(scores, labels, allowed=allowed).weights
    assert_best(weights, scores, labels, allowed)
    wild = scores.masked_fill(~allowed[:, :, None], 1e3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusing, "BLOCK_VALUES", 50)  # and in several blocks of nodes
        torch.testing.assert_close(fused_weights(wild, labels, allowed=allowed).weights, weights)


@settings(max_examples=10)
@given(seed=seeds, start=st.lists(st.floats(0.0, 30.0), min_size=4, max_size=4))
def test_from_anywhere_the_way_leads_to_the_same(seed, start):
    scores, labels = problem(seed)
    found = fused_weights(scores, labels, near=torch.tensor(start, dtype=torch.float64)).weights
    torch.testing.assert_close(found, fused_weights(scores, labels).weights, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("barred", [False, True])
def test_the_loss_of_a_mixture_by_hand(barred):
    """Without the pull towards equal weights, however far these are from them."""
    scores = torch.tensor([[[1.0], [0.0], [0.0]], [[0.0], [1.0], [3.0]]])
    fused = Fused(torch.tensor([2.0]), torch.tensor([0.0, 0.5, 0.0]))  # logits 2, .5, 0; 0, 2.5, 6
    allowed = torch.tensor([[True, True, not barred]])
    others = [[-1.5, -2.0], [-2.5, 3.5]]  # beside the right one
    each = [math.log(1 + sum(math.exp(gap) for gap in gaps[: 2 - barred])) for gaps in others]
    found = mixture_loss(scores, torch.tensor([0, 1]), fused, allowed=allowed)
    assert found == pytest.approx(sum(each) / 2)


def test_the_best_column_counts_of_as_few_answers_as_say_something_about_chance():
    right = torch.arange(float(FEWEST_ANSWERS))[:, None]
    assert lead_over_chance(right, right) == pytest.approx(FEWEST_ANSWERS**0.5)
    assert math.isnan(lead_over_chance(right[1:], right[1:]))
    both = lead_over_chance(torch.cat([-right, right], 1), right.expand(-1, 2))
    assert both == pytest.approx(FEWEST_ANSWERS**0.5 - math.sqrt(2 * math.log(2)))
