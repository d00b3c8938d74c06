"""The closed form itself: by hand, and against its least-squares problem."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.ridge import (
    TOLERANCE,
    RidgeProblem,
    balanced_ridge,
    choose_regularisation,
)
from evergraph.core.errors import DataError
from evergraph.methods.analytic import LADDER

Array = npt.NDArray[np.float64]
seeds = st.integers(0, 10_000)


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
    solution = np.linalg.lstsq(rows, targets, rcond=None)[0]
    return solution


@given(
    seed=seeds,
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    regularisation=st.sampled_from([1.0, 0.1, 0.01]),
    factor=st.sampled_from([1.0, 0.6, 7.0]),
)
def test_the_head_solves_the_class_balanced_problem(seed, sizes, regularisation, factor):
    features, labels = nodes_of(seed, sizes)
    # A common factor of all weights, such as the share of training nodes, changes nothing.
    statistics = statistics_of(features, labels, factor * balanced(labels))
    weights = (1 / labels.bincount().double())[labels].numpy()
    exact = features.double().numpy()
    penalty = regularisation * float((weights[:, None] * exact**2).sum(0).mean())
    expected = least_squares(exact, labels.numpy(), weights, penalty)
    head = balanced_ridge(statistics, regularisation).numpy()
    np.testing.assert_allclose(head, expected, atol=1e-4 * np.abs(expected).max())


def test_moments_of_unequal_masses_follow_the_formula():
    features, labels = nodes_of(3)
    matrix, means = balanced_moments(statistics_of(features, labels, torch.ones(18)))
    phi = features.double().numpy()
    centres = np.stack([phi[labels.numpy() == c].mean(0) for c in range(3)])
    scatter = (phi - centres[labels.numpy()]).T @ (phi - centres[labels.numpy()])
    expected = 3 / 18 * scatter + centres.T @ centres
    np.testing.assert_allclose(means.T.numpy(), centres, atol=1e-6)
    np.testing.assert_allclose(np.tril(matrix.numpy()), np.tril(expected), atol=1e-5)


def test_the_smaller_class_counts_as_much_as_the_larger():
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


def test_a_class_without_nodes_takes_no_part():
    features, labels = nodes_of(5)
    statistics = statistics_of(features, labels, balanced(labels))
    without = balanced_ridge(statistics, 0.1)
    statistics.grow(5)
    head = balanced_ridge(statistics, 0.1)
    assert head[:, :3].equal(without)
    assert not head[:, 3:].any()


@pytest.mark.parametrize("regularisation", [0.0, 1e-12, 0.01])
def test_singular_matrices_still_solve(regularisation):
    features, labels = torch.ones(4, 6), torch.tensor([0, 0, 1, 1])
    features[2:, :3] = 0.0  # six features, two directions
    head = balanced_ridge(statistics_of(features, labels, balanced(labels)), regularisation)
    scores = torch.stack([features[0], features[3]]).double() @ head
    assert scores.argmax(1).tolist() == [0, 1]
    torch.testing.assert_close(scores, torch.eye(2).double(), atol=0.1, rtol=0.0)
    assert not balanced_ridge(ClassStatistics(3), 0.1).any()  # nothing seen, nothing known


def test_numbers_that_are_none_are_refused_instead_of_tried_for_ever():
    features = torch.full((2, 3), 1e30)  # whose squares no float32 holds
    statistics = statistics_of(features, torch.tensor([0, 1]), torch.ones(2))
    with pytest.raises(DataError, match="small enough to be squared"):
        balanced_ridge(statistics, 0.1)
    with pytest.raises(DataError, match="small enough to be squared"):
        RidgeProblem.of(statistics).solution(0.01, torch.eye(statistics.width).double())


def balanced_moments(statistics: ClassStatistics) -> tuple[Tensor, Tensor]:
    problem = RidgeProblem.of(statistics)
    return problem.matrix(), problem.means


def error_of(head: Tensor, features: Tensor, labels: Tensor) -> float:
    """Σ_c 1/n_c Σ_{i∈c} ‖y_i - V'φ_i‖², node by node."""
    wanted = torch.eye(head.shape[1], dtype=torch.float64)[labels]
    misses = (wanted - features.double() @ head).square().sum(1)
    return float((misses * balanced(labels)).sum())


def mean_diagonal(statistics: ClassStatistics) -> float:
    return float(balanced_moments(statistics)[0].diagonal().mean())


def test_the_regularisation_chosen_has_the_error_computed_node_by_node():
    chosen = set()
    for seed in range(6):
        features, labels = nodes_of(seed, sizes=(8, 20, 12), width=12)
        seen = torch.rand(40, generator=torch.Generator().manual_seed(seed)) < 0.5
        training = statistics_of(features[seen], labels[seen], balanced(labels[seen]))
        # Nobody of the last class in the second: scores of it still count as errors.
        for asked in (~seen, ~seen & (labels < 2)):
            validation = statistics_of(features[asked], labels[asked], balanced(labels[asked]))
            heads = [balanced_ridge(training, value) for value in LADDER]
            errors = [error_of(head, features[asked], labels[asked]) for head in heads]
            limit = (1 + TOLERANCE) * min(errors)
            expected = min(r for r, error in zip(LADDER, errors, strict=True) if error <= limit)
            chosen.add(expected)
            assert choose_regularisation(training, validation, LADDER) == expected
            # The choice is made on as many features, with λ a share of the diagonal of all.
            narrow, first = validation.narrowed(7), training.narrowed(7)
            ratio = mean_diagonal(training) / mean_diagonal(first)
            expected = choose_regularisation(first, narrow, [ratio * value for value in LADDER])
            found = choose_regularisation(training, narrow, LADDER)
            assert ratio * found == pytest.approx(expected)
    assert len(chosen) > 1  # or a constant would do


def test_a_perfect_fit_is_a_choice_like_any_other():
    # Two points, one a class: the error rounds to a little less than 0.
    features = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).relu()
    features, labels = features.repeat_interleave(2, 0), torch.tensor([0, 0, 1, 1])
    statistics = statistics_of(features, labels, torch.full((4,), 1 / 3))
    assert choose_regularisation(statistics, statistics, LADDER) in LADDER
