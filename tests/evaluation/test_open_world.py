"""Rejection and forward transfer of answers written down by hand."""

from __future__ import annotations

import pytest
import torch

from evergraph.core.label_space import LabelSpace
from evergraph.evaluation.evaluator import Scored, forward_transfer, rejection

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


def test_known_classes_that_come_again_are_neither_known_nor_unknown_nodes() -> None:
    assert rejection(SEEN, NEXT, LEARNED) == 0.5  # 4 lies above 0 and below 5; 9 counts nowhere


def test_nodes_seen_are_read_in_the_graph_to_come_where_it_holds_them() -> None:
    both = marked(
        [0, 1, 0, 2], tasks=[0, 1, 2, 2], classes=[0, 1, 0, 0], novelty=[0.0, 1.0, 9.0, 4.0]
    )
    assert rejection(SEEN, both, LEARNED) == 1.0


def test_forward_transfer_by_hand() -> None:
    # class 0: one of two, class 1: one of one; guessing between two classes gives a half
    assert forward_transfer(NEXT, LEARNED) == pytest.approx(0.75 - 0.5)


def test_nodes_seen_already_are_no_transfer() -> None:
    assert forward_transfer(SEEN, LEARNED) is None


def test_without_new_classes_there_is_nothing_to_reject() -> None:
    again = marked([0], tasks=[2], classes=[1], novelty=[1.0])
    assert rejection(SEEN, again, LEARNED) is None
    assert forward_transfer(again, LEARNED) == pytest.approx(-0.5)
