"""How sure answers are and what is new: by hand, and against counting."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.label_space import LabelSpace
from evergraph.evaluation import expected_calibration_error, rejection_auroc
from evergraph.evaluation.evaluator import Scored, forward_transfer, rejection


def ece(confidence: list[float], right: list[bool], **options: int) -> float:
    return expected_calibration_error(torch.tensor(confidence), torch.tensor(right), **options)


def test_calibration_by_hand():
    # in (0.8, 1]: 0.9, 0.9, 1.0, two of three right: |2 - 2.8|; in (0.4, 0.6]: 0.6, right: 0.4
    found = ece([0.9, 0.9, 1.0, 0.6], [True, False, True, True], bins=5)
    assert found == pytest.approx((0.8 + 0.4) / 4)
    # As sure as it is right is no error.
    assert ece([0.75] * 4, [True, True, True, False]) == pytest.approx(0.0, abs=1e-7)
    assert ece([1.0] * 3, [True] * 3) == 0.0
    assert ece([1.0] * 3, [False] * 3) == 1.0
    # 0.61 wrong and 0.65 right: |1 - 1.26| in one of 15 bins, 0.61 and 0.35 apart
    assert ece([0.61, 0.65], [False, True]) == pytest.approx(0.26 / 2)
    assert ece([0.61, 0.65], [False, True], bins=50) == pytest.approx((0.61 + 0.35) / 2)
    # 0.5 and 0.4 share (0, 0.5]: |1 - 0.9|; were 0.5 in the bin above, 0.5 + 0.4
    assert ece([0.5, 0.4], [True, False], bins=2) == pytest.approx(0.1 / 2)
    # A learner that diverged has none.
    assert math.isnan(ece([0.5, math.nan], [True, False]))


answers = st.lists(
    st.tuples(st.floats(1 / 128, 1, width=32), st.booleans()), min_size=1, max_size=20
)


@given(answers=answers, bins=st.integers(1, 20))
def test_equal_to_going_through_the_bins(answers, bins):
    edges = [float(torch.tensor(b / bins)) for b in range(bins + 1)]
    total = 0.0
    for low, high in pairwise(edges):
        inside = [(sure, right) for sure, right in answers if low < sure <= high]
        if inside:
            accuracy = sum(right for _, right in inside) / len(inside)
            confidence = sum(sure for sure, _ in inside) / len(inside)
            total += len(inside) / len(answers) * abs(accuracy - confidence)
    sure, right = (list(side) for side in zip(*answers, strict=True))
    assert ece(sure, right, bins=bins) == pytest.approx(total, abs=1e-6)


def auroc(known: list[float], unknown: list[float]) -> float:
    return rejection_auroc(torch.tensor(known), torch.tensor(unknown))


def test_auroc_by_hand():
    # 3 beats 0, 1 and 2 and ties with 3; 1 beats 0 and ties with 1: (3.5 + 1.5) / 8
    assert auroc([2.0, 0.0, 3.0, 1.0], [3.0, 1.0]) == pytest.approx(5 / 8)
    # Told apart the wrong way round and not at all.
    assert auroc([0.0, 1.0], [2.0, 5.0]) == 1.0
    assert auroc([2.0, 5.0], [0.0, 1.0]) == 0.0
    assert auroc([4.0] * 3, [4.0] * 5) == 0.5
    # No nodes or no numbers give none.
    assert math.isnan(auroc([], [1.0]))
    assert math.isnan(auroc([1.0], []))
    assert math.isnan(auroc([1.0, math.nan], [1.0]))
    assert auroc([-math.inf, 0.0], [math.inf]) == 1.0


scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


@given(known=scores, unknown=scores)
def test_equal_to_counting_pairs_and_turned_round(known, unknown):
    pairs = [(k, u) for k in known for u in unknown]
    won = sum(1.0 if u > k else 0.5 if u == k else 0.0 for k, u in pairs)
    assert auroc(known, unknown) == pytest.approx(won / len(pairs))
    assert auroc(unknown, known) == pytest.approx(1 - auroc(known, unknown))


LEARNED = LabelSpace("class-il", (2, 0))  # two tasks, the second without a class of its own


def marked(
    labels: list[int], *, tasks: list[int], classes: list[int], novelty: list[float]
) -> Scored:
    return Scored(
        classes=torch.tensor(classes),
        confidence=torch.ones(len(labels)),
        novelty=torch.tensor(novelty),
        labels=torch.tensor(labels),
        tasks=torch.tensor(tasks),
    )


SEEN = marked([0, 1], tasks=[0, 1], classes=[0, 1], novelty=[0.0, 5.0])
# Task 2 brings class 0 twice, class 1 once, and class 2 for the first time.
NEXT = marked([0, 0, 1, 2], tasks=[2] * 4, classes=[0, 1, 1, 0], novelty=[9.0, 9.0, 9.0, 4.0])


def test_rejection_and_transfer_by_hand():
    assert rejection(SEEN, NEXT, LEARNED) == 0.5  # 4 lies above 0 and below 5; 9 counts nowhere
    # Nodes seen are read in the graph to come where it holds them.
    both = marked(
        [0, 1, 0, 2], tasks=[0, 1, 2, 2], classes=[0, 1, 0, 0], novelty=[0.0, 1.0, 9.0, 4.0]
    )
    assert rejection(SEEN, both, LEARNED) == 1.0
    # class 0: one of two, class 1: one of one; guessing between two classes gives a half
    assert forward_transfer(NEXT, LEARNED) == pytest.approx(0.75 - 0.5)
    # Nodes seen already are no transfer.
    assert forward_transfer(SEEN, LEARNED) is None
    # Without new classes there is nothing to reject.
    again = marked([0], tasks=[2], classes=[1], novelty=[1.0])
    assert rejection(SEEN, again, LEARNED) is None
    assert forward_transfer(again, LEARNED) == pytest.approx(-0.5)
