"""The one loss, against torch's own cross-entropy and against sums written out."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.core.label_space import LabelSpace
from evergraph.nn import masked_cross_entropy, term_weights
from evergraph.nn.losses import class_balanced, log_prior
from graphs_to_draw import few_each

seeds = st.integers(0, 10_000)
SIZES = (2, 3)  # tasks of classes 0 1 and 2 3 4


def examples(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    """Scores and targets over five classes, of which one may well be missing."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 5, generator=generator, dtype=torch.float64) * 3
    return logits, torch.randint(5, (rows,), generator=generator)


def class_weights(targets: Tensor, classes: int = 5) -> Tensor:
    """1 / n_c, and anything at all where there is no node of the class."""
    counts = [int((targets == c).sum()) for c in range(classes)]
    return torch.tensor([1 / n if n else 99.0 for n in counts], dtype=torch.float64)


def loss_of(setting: str, logits: Tensor, targets: Tensor) -> Tensor:
    space = LabelSpace(setting, SIZES)
    tasks = space.task_of(targets)
    weights = term_weights(class_balanced(targets).double(), space.terms(tasks))
    return masked_cross_entropy(logits, targets, weights=weights, allowed=space.allowed(tasks))


def test_losses_by_hand():
    # softmax of [ln 3, 0] is [3/4, 1/4]
    logits = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]])
    weights = torch.tensor([2.0, 6.0])
    loss = masked_cross_entropy(logits, torch.tensor([0, 1]), weights=weights)
    assert float(loss) == pytest.approx((2 * math.log(4 / 3) + 6 * math.log(4)) / 2)
    second, one = torch.tensor([1]), torch.ones(1)
    logits = torch.tensor([[math.log(3), 0.0, 50.0]])
    allowed = torch.tensor([[True, True, False]])
    assert float(masked_cross_entropy(logits, second, weights=one, allowed=allowed)) == (
        pytest.approx(math.log(4))
    )
    assert logits[0, 2] == 50.0
    logits, offsets = torch.zeros(1, 2), torch.tensor([math.log(3), 0.0])  # added to the scores
    loss = masked_cross_entropy(logits, second, weights=one, offsets=offsets)
    assert float(loss) == pytest.approx(math.log(4))
    assert logits.tolist() == [[0.0, 0.0]]


def test_classes_that_are_not_allowed_get_no_gradient():
    logits = torch.zeros(2, 3, requires_grad=True)
    allowed = torch.tensor([[True, True, False], [True, False, True]])
    loss = masked_cross_entropy(
        logits, torch.tensor([1, 0]), weights=torch.ones(2), allowed=allowed
    )
    loss.backward()
    assert logits.grad is not None
    # (softmax - one-hot) / rows
    torch.testing.assert_close(logits.grad, torch.tensor([[0.25, -0.25, 0.0], [-0.25, 0.0, 0.25]]))


def test_a_class_without_rows_gets_no_gradient_from_an_adjusted_loss():
    logits, targets = torch.zeros(4, 3, requires_grad=True), torch.tensor([0, 2, 2, 2])
    prior = log_prior(targets, 3)
    assert prior.exp().tolist() == [0.25, 0.0, 0.75]
    masked_cross_entropy(logits, targets, weights=torch.ones(4), offsets=prior).backward()
    # (softmax - one-hot) / rows, the softmax being the prior: it adds up to nothing over rows
    assert logits.grad[0].tolist() == pytest.approx([-0.75 / 4, 0.0, 0.75 / 4])
    assert logits.grad.sum(0).tolist() == pytest.approx([0.0, 0.0, 0.0])


def test_weights_of_classes_and_terms_by_hand():
    assert class_balanced(torch.tensor([3, 0, 3, 3, 3])).tolist() == [0.25, 1, 0.25, 0.25, 0.25]
    # group 0: weights 1 and 3, sum 4; group 2: weight 5; three rows
    weights = term_weights(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([0, 2, 0]))
    assert weights.tolist() == pytest.approx([3 / 4, 3.0, 9 / 4])
    assert term_weights(torch.empty(0), torch.empty(0, dtype=torch.int64)).shape == (0,)


@given(seed=seeds, rows=st.integers(1, 12))
def test_the_class_il_loss_is_torchs_weighted_by_class_size(seed, rows):
    logits, targets = examples(seed, rows)
    expected = cross_entropy(logits, targets, weight=class_weights(targets))
    torch.testing.assert_close(loss_of("class-il", logits, targets), expected, rtol=1e-6, atol=1e-8)


@given(seed=seeds, rows=st.integers(1, 12))
def test_in_task_il_the_loss_is_a_sum_of_torchs_one_a_task(seed, rows):
    logits, targets = examples(seed, rows)
    expected = torch.zeros((), dtype=torch.float64)
    for first, last in ((0, 2), (2, 5)):
        own = (targets >= first) & (targets < last)
        if own.any():
            expected += cross_entropy(
                logits[own, first:last],
                targets[own] - first,
                weight=class_weights(targets)[first:last],
            )
    torch.testing.assert_close(loss_of("task-il", logits, targets), expected, rtol=1e-6, atol=1e-8)


positive = st.floats(0.1, 10)
rows_of_terms = st.lists(st.tuples(positive, st.floats(-5, 5), st.integers(0, 3)), min_size=1)


@given(rows=rows_of_terms)
def test_term_weights_give_the_sum_of_weighted_means(rows):
    weights, losses, terms = (torch.tensor(column) for column in zip(*rows, strict=True))
    weights, losses = weights.double(), losses.double()
    expected = sum(
        sum(w * x for w, x, g in rows if g == term) / sum(w for w, _, g in rows if g == term)
        for term in {g for _, _, g in rows}
    )
    mean = float((term_weights(weights, terms) * losses).mean())
    assert mean == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
@few_each
@given(seed=seeds, batches=st.integers(1, 4), size=st.integers(1, 5))
def test_mini_batches_of_equal_size_average_to_the_whole_loss(setting, seed, batches, size):
    logits, targets = examples(seed, batches * size)
    space = LabelSpace(setting, SIZES)
    tasks = space.task_of(targets)
    weights = term_weights(class_balanced(targets).double(), space.terms(tasks))
    allowed = space.allowed(tasks)
    shuffle = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    parts = [
        masked_cross_entropy(
            logits[rows],
            targets[rows],
            weights=weights[rows],
            allowed=None if allowed is None else allowed[rows],
        )
        for rows in shuffle.split(size)
    ]
    torch.testing.assert_close(torch.stack(parts).mean(), loss_of(setting, logits, targets))


def test_smoothing_spreads_a_share_over_the_classes_allowed_by_hand():
    logits = torch.tensor([[2.0, 0.0, 5.0]], dtype=torch.float64)
    allowed = torch.tensor([[True, True, False]])
    right, wrong = torch.tensor([2.0, 0.0], dtype=torch.float64).log_softmax(0).tolist()
    loss = masked_cross_entropy(
        logits,
        torch.tensor([0]),
        weights=torch.ones(1, dtype=torch.float64),
        allowed=allowed,
        smoothing=0.2,
    )
    assert loss.item() == pytest.approx(-0.8 * right - 0.2 * (right + wrong) / 2)


@given(seed=seeds, rows=st.integers(1, 9))
def test_smoothing_is_torchs_where_every_class_is_allowed(seed, rows):
    logits, targets = examples(seed, rows)
    ours = masked_cross_entropy(
        logits, targets, weights=torch.ones(rows, dtype=torch.float64), smoothing=0.1
    )
    torch.testing.assert_close(ours, cross_entropy(logits, targets, label_smoothing=0.1))
