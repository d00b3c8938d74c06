"""Heads of several views from sums: penalties and a mixture chosen by answers held back."""

import pytest
import torch
from torch import Tensor

from evergraph.closed_form import ClassStatistics, engine
from evergraph.closed_form.engine import ViewEngine
from evergraph.closed_form.fusing import PRIOR, Answers
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.leave_one_out import Sample, choose_penalty
from evergraph.closed_form.ridge import LADDER, balanced_ridge, choose_regularisation
from evergraph.closed_form.target_heads import ValueEngine
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import CODES, View, ViewRows
from view_rows import view_rows

OWN = View((0,))


def told(seed: int, nodes: int, *, classes: int = 2) -> tuple[Tensor, Tensor]:
    """Return three features, of which the first tells a little of the class."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(nodes) % classes
    rows = torch.randn(nodes, 3, generator=draw)
    rows[:, 0] += labels
    return rows, labels


def learned(features: RandomMap | KernelMap, rows: Tensor, labels: Tensor, **options) -> ViewEngine:
    made = ViewEngine(**options)
    made.begin(features)
    rows = view_rows(rows, kept=tuple(made.map.sizes))
    made.count(rows, labels, weights=torch.ones(len(labels)))
    return made


def test_a_penalty_chosen_on_some_features_suits_all(monkeypatch):
    """Four equal blocks of features have four times the kernel of one: so must be λ."""
    block = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    whole = RandomMap((OWN,), {0: block.repeat(1, 4)})
    rows, labels = told(0, 60)  # with noise enough that the weakest penalty is not the best
    asked = view_rows(rows[40:], None)
    monkeypatch.setattr(engine, "CHOICE_WIDTH", 8)
    made = learned(whole, rows[:40], labels[:40])
    made.solve(Answers(asked, labels[40:]))

    first = whole.narrowed(8)
    seen, held = ClassStatistics(8, precise=True), ClassStatistics(8, precise=True)
    seen.add(next(first(view_rows(rows[:40], None))), labels[:40], torch.ones(40))
    held.add(next(first(asked)), labels[40:], torch.full((20,), 0.1))
    chosen = choose_regularisation(seen, held, LADDER)
    assert LADDER[-1] < chosen < LADDER[0]
    (wide,), (narrow,) = whole(asked), first(asked)
    torch.testing.assert_close(
        wide.double() @ balanced_ridge(made.sums_[0], float(made.strengths_)),
        narrow.double() @ balanced_ridge(seen, chosen),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("balanced", [True, False])
def test_answers_count_alike_unless_classes_do(balanced):
    """Most of them are of one class: what suits it is not what suits both."""
    draw = torch.Generator().manual_seed(47)
    labels = (torch.arange(76) % 9 == 0).long()
    rows = torch.randn(76, 3, generator=draw)
    rows[:, 0] += 2 * labels
    whole = RandomMap.drawn([OWN], {0: 3}, width=16, seed=0)
    made = learned(whole, rows[:40], labels[:40], balanced=balanced)
    asked, answers = view_rows(rows[40:], None), labels[40:]
    made.solve(Answers(asked, answers))
    each, chosen = torch.bincount(answers)[answers], []
    for weights in (1 / each, torch.ones(36)):
        held = ClassStatistics(16, precise=True)
        held.add(next(whole(asked)), answers, weights)
        chosen.append(choose_regularisation(made.sums_[0], held, LADDER, balanced=balanced))
    assert chosen[0] != chosen[1]
    assert float(made.strengths_) == chosen[0 if balanced else 1]


@pytest.mark.parametrize("names", [("0+y", "32", "0"), ("32",)])
def test_a_far_view_takes_part_where_no_labels_are_shown(names):
    """It alone says the class, yet is left out where labels are shown, unless it stands alone."""
    views = tuple(map(View.parse, names))
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    own, codes = torch.randn(60, 2, generator=draw), torch.randn(60, 2, generator=draw)
    far = torch.nn.functional.one_hot(labels).float()
    rows = ViewRows({(0,): own, (CODES,): codes, (32,): far})
    made = ViewEngine(precise=False)
    made.begin(RandomMap.drawn(views, {0: 2, CODES: 2, 32: 2}, width=8, seed=0))
    made.count(rows[:40], labels[:40], weights=torch.ones(40))
    answers = Answers(rows[40:], labels[40:])
    _, scores = made.solve(answers)
    plain = [place for place, name in enumerate(names) if name != "0+y"]
    shares = dict(zip(names, made.fused_.weights.tolist(), strict=True))
    bare = dict(zip(names, made.mixture(scores, answers, plain).weights.tolist(), strict=True))
    assert bare["32"] == max(bare.values())
    assert (shares["32"] > 0) == (names == ("32",))
    assert made.mixture(scores, answers, []).weights.tolist() == [0.0] * len(names)


def test_landmarks_with_their_kernel_as_penalty_are_whitened_features():
    """With φ = L⁻¹k and L Lᵀ = K the penalty is λI: the same scores by the same λ."""
    rows, labels = told(3, 90, classes=3)
    features = KernelMap.of((OWN,), {0: rows[:12]})
    made = learned(features, rows[:60], labels[:60])
    asked = view_rows(rows[60:], None)
    (head,), _ = made.solve(Answers(asked, labels[60:]))
    (penalty,) = features.penalties().values()
    factor = torch.linalg.cholesky(penalty.double())

    def whitened(nodes: Tensor) -> Tensor:
        (kernel,) = features(view_rows(nodes, None))
        return torch.linalg.solve_triangular(factor, kernel.double().t(), upper=False).t()

    sums = ClassStatistics(12, precise=True)
    sums.add(whitened(rows[:60]), labels[:60], torch.ones(60))
    strength = float(made.strengths_) * 3 * float(penalty.diagonal().mean()) / 12
    diagonal = float(torch.stack([sums.gram_.diagonal()]).mean())
    assert 0 < strength < 1e3 * diagonal
    matrix = sums.gram_.tril() + sums.gram_.tril(-1).t()
    means = (sums.sums_ / sums.mass_[:, None]).t()
    share = 3 / 60
    a = share * (matrix - 20 * means @ means.t()) + means @ means.t()
    expected = whitened(rows[60:]) @ torch.linalg.solve(a + strength * torch.eye(12), means)
    (kernel,) = features(asked)
    torch.testing.assert_close(kernel @ head, expected.float(), atol=1e-4, rtol=1e-3)


def test_a_penalty_chosen_on_landmarks_is_that_of_whitened_features():
    """By nodes that are left out in turn, none of which is a landmark."""
    rows, labels = told(3, 90, classes=3)
    features = KernelMap.of((OWN,), {0: rows[:12]})
    none, weights = torch.full((78,), -1), torch.full((78,), 1 / 32)  # of 26 nodes a class
    made = ViewEngine()
    made.begin(features)
    made.count(rows[12:], labels[12:], weights=weights)
    made.solve(Answers(rows[12:], labels[12:], none, weights=weights))
    (penalty,) = features.penalties().values()
    (kernel,) = features(rows[12:])
    factor = torch.linalg.cholesky(penalty.double())
    white = torch.linalg.solve_triangular(factor, kernel.double().t(), upper=False).t()
    sums = ClassStatistics(12, precise=True)
    sums.add(white, labels[12:], weights)
    scale = 3 * float(penalty.diagonal().mean()) / 12
    sample = Sample(white, labels[12:], weights.double(), none)
    chosen = choose_penalty(sums, sample, [scale * value for value in LADDER])
    assert float(made.strengths_) == pytest.approx(chosen / scale)
    assert made.fused_.offsets.any()


def test_without_answers_views_weigh_the_same_and_the_loss_is_unknown():
    rows, labels = told(0, 20)
    made = learned(
        RandomMap.drawn([OWN, View((1,))], {0: 3, 1: 3}, width=8, seed=0), rows.repeat(1, 2), labels
    )
    answers = Answers(view_rows(rows[:0].repeat(1, 2), kept=(0, 1)), labels[:0])
    _, scores = made.solve(answers)
    assert made.fused_.weights.tolist() == [5.0, 5.0]
    assert made.loss(scores, answers) == float("inf")


def test_the_loss_is_over_the_classes_that_answers_may_have():
    rows, labels = told(0, 40, classes=4)
    made = learned(RandomMap.drawn([OWN], {0: 3}, width=8, seed=0), rows, labels)
    both = torch.tensor([[True, True, False, False], [False, False, True, True]])
    every, some = (
        Answers(view_rows(rows, None), labels, allowed=allowed)
        for allowed in (None, both[labels // 2])
    )
    _, scores = made.solve(every)
    logits = (scores.double() * made.fused_.weights).sum(2).masked_fill(~both[labels // 2], -9e9)
    expected = torch.nn.functional.cross_entropy(logits, labels)  # as many of each class
    assert made.loss(scores, some) == pytest.approx(float(expected))
    assert made.loss(scores, every) > made.loss(scores, some)


def test_the_weight_of_a_view_of_numbers_by_hand():
    """(2a - 1)² + p (a - 1)² with p = PRIOR / 8: values centred and of length 1, scores twice them."""
    made = ValueEngine(targets=1)
    made.begin(RandomMap.drawn([OWN], {0: 3}, width=8, seed=0))
    values = torch.arange(8.0)[:, None].double()
    made.grow(1)  # there is room, and still all to be solved for, though from nothing
    assert not made.solved
    made.solve(Answers(torch.zeros(0, 3), values[:0], torch.zeros(0).long()))
    weight, offset = made.mixture(2 * values[:, :, None] + 5, Answers(values[:, :0], values), [0])
    share = PRIOR / 8
    assert weight.item() == pytest.approx((2 + share) / (4 + share), rel=1e-9)
    assert offset.item() == pytest.approx(3.5 - 12 * weight.item())


@pytest.mark.parametrize("seed", range(3))
def test_engines_of_other_nodes_merge_into_one_of_all(seed):
    rows, labels = told(seed, 80)
    features = RandomMap.drawn([OWN], {0: 3}, width=8, seed=1)
    asked = Answers(view_rows(rows[60:], None), labels[60:])
    whole, first, second = (
        learned(features, rows[part], labels[part])
        for part in (slice(60), slice(25), slice(25, 60))
    )
    first.merge(second)
    first.grow(2)  # as many as there are
    (found, _), (expected, _) = first.solve(asked), whole.solve(asked)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert not first.fused_.offsets.any()  # of nodes that were held back


TWO, NOBODY = told(1, 2), (torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
# What is done to an engine of two classes, and whether it must be solved again.
DONE = {
    "learn": (lambda made: made.count(*TWO), True),
    "learn nobody": (lambda made: made.count(*NOBODY), False),
    "forget": (lambda made: made.count(*TWO, -1), True),
    "move": (lambda made: made.exchange(TWO[0], TWO[0].flip(0), TWO[1]), True),
    "move nobody": (lambda made: made.exchange(NOBODY[0], *NOBODY), False),
    "merge": (lambda made: made.merge(learned(made.map, *TWO)), True),
    "empty": (lambda made: made.clear(), True),
    "erase a landmark": (lambda made: made.erase(torch.tensor([1])), True),
    "a new class": (lambda made: made.grow(3), True),
    "as many classes": (lambda made: made.grow(2), False),
}


@pytest.mark.parametrize("name", DONE)
def test_heads_are_out_of_date_once_sums_have_changed(name):
    rows, labels = told(0, 20)
    made = learned(KernelMap.of((OWN,), {0: rows[:6]}), rows, labels)
    made.solve(Answers(rows, labels, torch.arange(20).where(torch.arange(20) < 6, -1)))
    change, changed = DONE[name]
    change(made)
    assert made.solved is not changed
    again = learned(made.map, *NOBODY)
    again.begin(made.map, classes=made.num_classes)
    again.restore(made.state())
    assert again.solved is not changed
