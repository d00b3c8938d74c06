"""Nodes left out in closed form: as if they had never been counted, and what is chosen by them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.engine import ViewEngine
from evergraph.closed_form.fusing import Answers
from evergraph.closed_form.leave_one_out import (
    Halves,
    Sample,
    choose_penalty,
    left_out,
    left_out_errors,
    left_out_scores,
)
from evergraph.closed_form.ridge import LADDER, PenaltyPath, RidgeProblem, nearly_best
from evergraph.closed_form.target_heads import ValueEngine
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import View

NODES, CLASSES = 14, 3


def drawn(seed: int, width: int) -> tuple[Tensor, Tensor]:
    """Return features and labels; every class but the last, which has none, has two nodes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (NODES,), generator=generator)
    labels[: 2 * CLASSES] = torch.arange(2 * CLASSES) % CLASSES
    return torch.randn(NODES, width, generator=generator, dtype=torch.float64), labels


def counted(rows: Tensor, labels: Tensor, weights: Tensor) -> ClassStatistics:
    statistics = ClassStatistics(rows.shape[1], precise=True)
    statistics.grow(CLASSES + 1)
    statistics.add(rows, labels, weights)
    return statistics


def penalty_of(width: int, seed: int) -> Tensor:
    root = torch.randn(width, width + 1, generator=torch.Generator().manual_seed(seed)).double()
    return root @ root.t() + 0.1 * torch.eye(width)


@given(
    seed=st.integers(0, 999),
    width=st.integers(2, 6),
    balanced=st.booleans(),
    weighted=st.booleans(),
)
def test_a_node_left_out_is_one_that_was_never_counted(seed, width, balanced, weighted):
    """Nor was it a landmark. λ and what a node counts are taken to stay."""
    rows, labels = drawn(seed, width)
    by_class = torch.tensor([0.25, 1.0, 2.0]).double() if weighted else torch.ones(3).double()
    weights, penalty = by_class[labels], penalty_of(width, seed)
    landmarks = torch.full((NODES,), -1)
    landmarks[1::2][:width] = torch.arange(width)[: len(landmarks[1::2])]
    statistics = counted(rows, labels, weights)
    solution = RidgeProblem.of(statistics, balanced=balanced).solution(0.1, penalty)
    sample = Sample(rows, labels, weights, landmarks)
    halves = [solution.half(part) for part in (rows, solution.problem.means.t(), sample.own())]
    found = left_out(solution.problem, Halves(*halves), sample, statistics.mass_, balanced=balanced)
    share = 3 / weights.sum()
    added = 0.1 * RidgeProblem.of(statistics, balanced=balanced).scale(penalty) * penalty
    for node, landmark in enumerate(landmarks.tolist()):
        others = torch.arange(NODES) != node
        x, y, w = rows[others], labels[others], weights[others]
        matrix, right = added + share * (w[:, None] * x).t() @ x, torch.zeros(width, 4).double()
        for label in range(CLASSES):
            mass = w[y == label].sum()
            total = (w[y == label, None] * x[y == label]).sum(0)
            right[:, label] = total / mass if balanced else share * total
            if balanced:
                matrix += (1 - share * mass) * torch.outer(total, total) / mass**2
        kept = torch.arange(width) != landmark  # all, if it is none
        expected = rows[node, kept] @ torch.linalg.solve(matrix[kept][:, kept], right[kept])
        torch.testing.assert_close(found[node], expected, atol=1e-7, rtol=1e-6)


@given(seed=st.integers(0, 999), own=st.booleans(), balanced=st.booleans())
def test_one_decomposition_leaves_nodes_out_as_a_solution_for_every_penalty_does(
    seed, own, balanced
):
    rows, labels = drawn(seed, 4)
    penalty = penalty_of(4, seed) if own else None
    weights = torch.ones(NODES).double()
    statistics = counted(rows, labels, weights)
    places = torch.full((NODES,), -1)
    places[:4] = torch.arange(4)
    sample = Sample(rows, labels, weights, places)
    scale = RidgeProblem.of(statistics, balanced=balanced).scale(penalty)
    ladder = [0.01, 1.0]
    problem, masses = RidgeProblem.of(statistics, balanced=balanced), statistics.mass_
    path, tried = (PenaltyPath.of(problem.matrix(), penalty), [scale * v for v in ladder])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evergraph.closed_form.leave_one_out.BLOCK_VALUES", 20)  # some at a time
        found = left_out_errors(path, problem, sample, masses, tried, balanced=balanced)
    for value, error in zip(ladder, found, strict=True):
        solution = problem.solution(value, penalty)
        parts = (rows, solution.problem.means.t(), sample.own())
        halves = Halves(*(solution.half(part) for part in parts))
        scores = left_out(solution.problem, halves, sample, masses, balanced=balanced)
        each = (scores - torch.nn.functional.one_hot(labels, 4)).square().sum(1)
        shares = torch.bincount(labels).double().reciprocal()[labels] if balanced else weights
        assert error == pytest.approx(float(shares @ each), rel=1e-6)


def test_the_first_of_a_sample_know_landmarks_among_the_first_features():
    rows, labels = drawn(0, 4)
    places = torch.tensor([0, 3, -1, 2, 1] + [-1] * 9)
    some = Sample(rows, labels, torch.ones(NODES), places).first(7, 3)
    assert some.features.equal(rows[:7, :3])
    assert some.labels.equal(labels[:7])
    assert some.landmarks.tolist() == [0, -1, -1, 2, 1, -1, -1]
    assert Sample(rows, labels, torch.ones(NODES), places).first(NODES, 3).landmarks[1] == -1


def test_where_features_are_weak_the_least_error_decides_without_a_tolerance():
    """All errors are within 2 % or so, where the least penalty is far from the best."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(200) % 20 == 0
    rows = torch.randn(200, 6, generator=generator).double() + 0.4 * labels[:, None]
    labels, weights = labels.long(), torch.ones(200)
    sample = Sample(rows, labels, weights.double(), torch.full((200,), -1))
    statistics = counted(rows, labels, weights)
    problem = RidgeProblem.of(statistics)
    ladder = [problem.scale() * value for value in LADDER]
    path = PenaltyPath.of(problem.matrix())
    errors = left_out_errors(path, problem, sample, statistics.mass_, ladder, balanced=True)
    best = ladder[errors.index(min(errors))]
    assert choose_penalty(statistics, sample, ladder) == best
    assert nearly_best(ladder, errors) < best


def test_without_balance_nodes_are_left_out_of_the_problem_without_balance():
    rows, labels = drawn(10, 4)
    rows, weights = rows + 2 * torch.nn.functional.one_hot(labels, 4), torch.ones(NODES).double()
    statistics = counted(rows, labels, weights)
    sample = Sample(rows, labels, weights, torch.full((NODES,), -1))
    ladder, errors = [0.1 * 1.25**step for step in range(25)], []
    for value in ladder:
        problem = RidgeProblem.of(statistics, balanced=False)
        solution = problem.solution(value / problem.scale())
        scores = left_out_scores(solution, sample, statistics.mass_, balanced=False)
        wanted = torch.nn.functional.one_hot(labels, CLASSES + 1)
        errors.append(float((scores - wanted).square().sum()))
    best = ladder[errors.index(min(errors))]
    assert choose_penalty(statistics, sample, ladder, balanced=False) == best
    assert choose_penalty(statistics, sample, ladder) != best


def test_a_penalty_is_relative_to_the_mean_of_a_diagonal():
    """C/m times the mean of P's, or the mean of A's own."""
    rows, labels = drawn(0, 4)
    statistics = counted(rows, labels, torch.ones(NODES).double())
    mean = float(RidgeProblem.of(statistics).diagonal().mean())
    assert RidgeProblem.of(statistics).scale() == pytest.approx(mean)
    assert RidgeProblem.of(statistics).scale(5 * torch.eye(4)) == pytest.approx(3 / 4 * 5)


# Engines.


def plain_map(width: int) -> RandomMap:
    """Return φ(x) = √(2/m) max(0, x)."""
    return RandomMap((View((0,)),), {0: torch.eye(width)})


@pytest.mark.parametrize("targets", [1, 2])
def test_values_of_nodes_left_out_are_those_learned_without_them(targets):
    """Nor is a landmark among the features. λ is taken to stay."""
    generator = torch.Generator().manual_seed(targets)
    rows = torch.rand(NODES, 4, generator=generator)
    values = rows[:, :targets] * 5 + torch.randn(NODES, targets, generator=generator)
    engine, places = ValueEngine(targets=targets), torch.full((NODES,), -1)
    engine.begin(plain_map(4))
    engine.count(rows, values)
    engine.strengths_, engine._levels = torch.tensor([0.1]), [torch.zeros(targets)]
    [features] = engine.map(rows)
    features = features.double()
    places[5] = 2
    _, found = engine._solved(0, Sample(features, values, torch.ones(NODES), places))
    added = 0.1 * (features - features.mean(0)).square().sum() / 4
    for node, landmark in enumerate(places.tolist()):
        others, kept = torch.arange(NODES) != node, torch.arange(4) != landmark
        x, y = features[others][:, kept], values[others].double()
        middle, level = x.mean(0), y.mean(0)
        matrix = (x - middle).t() @ (x - middle) + added * torch.eye(x.shape[1])
        weights = torch.linalg.solve(matrix, (x - middle).t() @ (y - level))
        expected = (features[node, kept] - middle) @ weights + level
        torch.testing.assert_close(found[node], expected, atol=1e-6, rtol=1e-6)


def test_the_penalty_of_values_is_that_of_the_least_error_of_nodes_left_out():
    """Not the least within a tolerance: these values are noise, of which less would be more."""
    generator = torch.Generator().manual_seed(0)
    rows, values = (torch.rand(60, width, generator=generator) for width in (4, 1))
    engine, none = ValueEngine(targets=1), torch.full((60,), -1)
    engine.begin(plain_map(4))
    engine.count(rows, values)
    engine.solve(Answers(rows, values, none))
    chosen = float(engine.strengths_)
    [features] = engine.map(rows)
    sample = Sample(features.double(), values, torch.ones(60), none)
    errors = {}
    for value in LADDER:
        engine.strengths_ = torch.tensor([value])
        _, found = engine._solved(0, sample)
        errors[value] = float((found - values).square().sum())
    assert chosen == min(errors, key=errors.get)


def test_penalties_are_chosen_again_when_nodes_have_grown_by_a_quarter_or_one_has_gone():
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(600, 4, generator=generator)
    labels = (rows[:, 0] > rows[:, 1]).long()
    engine = ViewEngine()
    engine.begin(plain_map(4))

    def solve(start: int, end: int, sign: int = 1) -> int:
        engine.count(rows[start:end], labels[start:end], sign)
        asked = Answers(rows[:50], labels[:50], torch.full((50,), -1))
        engine.solve(asked)
        return engine._chosen_for

    assert [solve(0, 300), solve(300, 375), solve(375, 376)] == [300, 300, 376]
    assert [solve(376, 377), solve(376, 377, -1)] == [376, 376]
    engine.strengths_ = engine.strengths_ * 0 + 5.0
    solve(376, 377)
    assert engine.strengths_.tolist() == [5.0]
    solve(376, 377, -1)
    assert engine.strengths_.tolist() != [5.0]
    engine.strengths_ = engine.strengths_ * 0 + 5.0
    engine.clear()
    solve(0, 300)
    assert engine.strengths_.tolist() != [5.0]
