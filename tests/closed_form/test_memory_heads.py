"""Heads on a memory of embeddings: the kernel ridge regression that they stand for."""

from dataclasses import replace

import pytest
import torch

from evergraph.closed_form import memory_heads
from evergraph.closed_form.engine import ViewEngine
from evergraph.closed_form.fusing import Answers
from evergraph.closed_form.kept_nodes import draw_order
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.memory_heads import (
    LADDER,
    UNKNOWN,
    MemoryHeads,
    NodeMemory,
    chosen_strength,
    kernel_ridge,
    memory_views,
)
from evergraph.closed_form.ridge import balanced_ridge
from evergraph.closed_form.statistics import ClassStatistics
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import View, ViewRows, parse_views
from evergraph.core.seeding import seeded
from view_rows import view_rows

ONE = (View((0,)),)
NO_ROWS, NO_ANSWERS = view_rows(torch.empty(0, 2), None), torch.empty(0, dtype=torch.int64)


def unit(*shape: int, seed: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=seeded(seed)), dim=-1)


def kernels_of(rows: ViewRows) -> KernelMap:
    return KernelMap.of(ONE, rows.taken(torch.device("cpu")).parts())


def fitted(rows, labels, *, held_back=NO_ROWS, answers=NO_ANSWERS, masses=None, views=ONE):
    kernels = KernelMap.of(views, rows.parts())
    masses = torch.ones(int(labels.max()) + 1) if masses is None else masses
    order = torch.randperm(len(labels), generator=seeded(0))
    return MemoryHeads.fitted(kernels, labels, held_back, answers, masses=masses, order=order)


def test_two_orthogonal_nodes_by_hand():
    """K = [[1, 1/π], [1/π, 1]], since the kernel of two orthogonal unit vectors is 1/π."""
    heads, _ = fitted(view_rows(torch.eye(2), None), torch.tensor([0, 1]))
    across, own = 1 / torch.pi, 1 + UNKNOWN
    expected = torch.tensor([[own, -across], [-across, own]]) / (own**2 - across**2)
    torch.testing.assert_close(heads.heads[0], expected, atol=1e-4, rtol=0)
    assert heads.weights.dtype == torch.float64
    twice = replace(heads, weights=2 * heads.weights)
    scores = twice.add_scores(torch.zeros(1, 2), view_rows(torch.tensor([[0.0, 1.0]]), None))
    wanted = 2 * torch.tensor([[across, 1.0]]) @ expected
    torch.testing.assert_close(scores, wanted, atol=1e-4, rtol=0)


def test_a_kept_node_stands_for_its_class_whatever_is_kept_of_others():
    """The same problem as class-balanced ridge regression on features whose products are K."""
    features = torch.randn(9, 4, generator=seeded(1)).double()
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 2])
    sums = ClassStatistics(4, precise=True)
    sums.add(features, labels, torch.bincount(labels)[labels].reciprocal())
    strength = 0.3
    # balanced_ridge takes λ relative to the mean of A's diagonal, kernel_ridge to the mean weight
    relative = strength * (3 / 9) / float(sums.gram_.diagonal().mean())
    expected = features @ balanced_ridge(sums, relative)
    gram = features @ features.t()
    found = gram @ kernel_ridge(gram, labels, torch.ones(3).double(), strength=strength).double()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def strength_of(heads: MemoryHeads, labels: torch.Tensor) -> float:
    """Return the λ that the heads were solved with."""
    kernel, masses = heads.map, torch.ones(2).double()
    gram = kernel.features(ONE[0], kernel.projected(kernel.landmarks))
    (found,) = (
        strength
        for strength in LADDER
        if kernel_ridge(gram, labels, masses, strength=strength).equal(heads.heads[0])
    )
    return found


def test_the_penalty_is_the_one_that_answers_held_back_ask_for():
    rows, labels = unit(60, 8, seed=2), torch.arange(60) % 2
    signal = view_rows(rows + 2 * torch.eye(8)[labels], None)
    clean, _ = fitted(signal, labels, held_back=signal, answers=labels)
    noise, _ = fitted(view_rows(rows, None), labels, held_back=signal, answers=1 - labels)
    assert strength_of(clean, labels) < strength_of(noise, labels) == max(LADDER)


@pytest.mark.parametrize("best", range(len(LADDER)))
def test_the_least_error_is_found_on_whatever_rung_it_is(monkeypatch, best):
    def rung_of(*_, strength):
        return torch.tensor([[float(LADDER.index(strength))]])

    monkeypatch.setattr(memory_heads, "kernel_ridge", rung_of)
    monkeypatch.setattr(memory_heads, "squared_error", lambda rung, *_: abs(float(rung) - best))
    nothing = torch.zeros(1, 1)
    found = chosen_strength(nothing, torch.ones(1, 1), NO_ANSWERS, NO_ANSWERS, nothing)
    assert found == LADDER[best]


def test_scores_of_nodes_held_back_are_those_of_any_node():
    rows = view_rows(unit(12, 5, seed=3), None)
    asked = view_rows(unit(4, 5, seed=4), None)
    answers = torch.tensor([0, 1, 2, 0])
    heads, scores = fitted(rows, torch.arange(12) % 3, held_back=asked, answers=answers)
    torch.testing.assert_close(heads.add_scores(torch.zeros(4, 3), asked), scores[:, :, 0])


def test_views_of_weight_nothing_are_not_computed():
    """So nodes without class codes can be asked, if only views without codes have weight."""
    rows = view_rows(unit(6, 4, seed=5), unit(6, 3, seed=6))
    views = (View((0,), True), View((0,)))
    heads, _ = fitted(rows, torch.arange(6) % 2, held_back=rows[:0], views=views)
    heads = replace(heads, weights=torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    assert list(heads.used(coded=False)) == [views[1]]
    nothing = torch.zeros(6, 2)
    assert heads.add_scores(nothing, view_rows(rows.hops, None)).any()
    assert not heads.add_scores(nothing, rows).any()


@pytest.mark.parametrize("balanced", [True, False])
def test_kept_nodes_stand_for_as_many_as_the_engine_counts_them(balanced):
    """A class weighs what any other does, or as many nodes as it has, however few are kept."""
    rows, labels = view_rows(unit(40, 4, seed=7), None), (torch.arange(40) % 5 == 0).long()
    engine, memory = ViewEngine(balanced=balanced), NodeMemory(4)
    engine.begin(RandomMap.drawn(ONE, {0: 4}, width=8, seed=0))
    engine.count(rows[:30], labels[:30])
    memory.keep(rows[:30], labels=labels[:30], nodes=torch.arange(30))
    answers = Answers(rows[30:], labels[30:])
    _, scores = engine.solve(answers)
    memory.solve(kernels_of, engine, answers, scores, [engine.fused_.weights] * 2)
    expected, _ = MemoryHeads.fitted(
        kernels_of(memory.rows_),
        memory.labels_,
        answers.rows,
        answers.labels,
        masses=torch.tensor([1, 1] if balanced else [24, 6]),
        order=draw_order(memory.nodes_).argsort(),
    )
    torch.testing.assert_close(memory.heads.heads[0], expected.heads[0])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["2", "4"], ["2|4", "2"]),
        (["y"], ["y"]),
        (["0|2+y"], ["0|2+y", "0|2", "0", "2"]),
        (["0", "32"], ["0|32", "0"]),
    ],
)
def test_views_of_a_memory_show_what_its_nodes_have(given, expected):
    assert [str(view) for view in memory_views(parse_views(given))] == expected
