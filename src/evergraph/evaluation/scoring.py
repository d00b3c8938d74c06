"""A learner's answers beside the right ones: how sure they are, and what is new to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from evergraph.core.label_space import LabelSpace, Predictions
from evergraph.evaluation.yardstick import balanced_accuracy
from evergraph.graphs import Graph
from evergraph.streams import Exam


class Predictor(Protocol):
    """Anything that answers for nodes in a graph."""

    def answer(self, graph: Graph, nodes: Tensor, tasks: Tensor | None = None) -> Predictions:
        """Return class, confidence and novelty of each node."""
        ...


@dataclass(frozen=True, eq=False)
class Scored:
    """Answers about test nodes, and the right classes.

    Attributes:
        classes, confidence, novelty: see ``Predictions``.  [nodes]
        labels: the right classes.  int64 [nodes]
        tasks: which task each node arrives in.  int64 [nodes]
        values, targets: answers and what is right where nodes have several labels or numbers; see
            ``Predictions`` and ``Exam``.  [nodes, targets]
    """

    classes: Tensor
    confidence: Tensor
    novelty: Tensor
    labels: Tensor
    tasks: Tensor
    values: Tensor | None = None
    targets: Tensor | None = None

    @property
    def compared(self) -> tuple[Tensor, Tensor]:
        """What was answered and what is right: classes, or targets where nodes have these."""
        if self.values is None or self.targets is None:
            return self.classes, self.labels
        return self.values, self.targets

    @property
    def right(self) -> Tensor:
        """Which answers are right.  bool [nodes]"""
        return self.classes == self.labels


def mark(learner: Predictor, exams: Sequence[Exam]) -> Scored:
    """Ask a learner about every set of test nodes once; return its answers with the right ones."""
    answers = [learner.answer(exam.graph, exam.nodes, exam.tasks) for exam in exams]
    return Scored(
        classes=torch.cat([a.classes for a in answers]),
        confidence=torch.cat([a.confidence for a in answers]),
        novelty=torch.cat([a.novelty for a in answers]),
        labels=torch.cat([exam.labels for exam in exams]),
        tasks=torch.cat([exam.tasks for exam in exams]),
        values=_joined([a.values for a in answers]),
        targets=_joined([exam.targets for exam in exams]),
    )


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.cat(found) if found else None


BINS = 15


def expected_calibration_error(confidence: Tensor, right: Tensor, *, bins: int = BINS) -> float:
    """Return how far confidence and accuracy are apart (Guo et al., ICML 2017).

    ECE = Σ_b n_b/n · |accuracy_b - confidence_b| over bins of equal width in (0, 1], b holding the
    nodes whose confidence lies in ((b-1)/bins, b/bins]. Every node counts the same, as in the
    paper: unlike our accuracies it is not class-balanced. 0 where a learner that is 80 % sure is
    right in 80 of 100 cases; NaN where a confidence is.

    confidence: [nodes]; right: whether the answer is, bool [nodes] -> 0..1

    Two of three answers at 0.9 are right, and none of one at 0.5: 3/4 · 0.233 + 1/4 · 0.5.

    >>> sure = torch.tensor([0.9, 0.9, 0.9, 0.5])
    >>> round(expected_calibration_error(sure, torch.tensor([True, True, False, False])), 3)
    0.3
    """
    sure = confidence.double()
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    # Compared as they came: a float32 on an edge must not cross it for being widened.
    owner = torch.bucketize(confidence, edges.to(confidence.dtype))
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, owner, right.double() - sure)
    return float(gap.abs().sum() / len(sure))


def rejection_auroc(known: Tensor, unknown: Tensor) -> float:
    """Return how often an unknown node looks more novel than a known one (AUROC).

    AUROC = P(s_unknown > s_known) + P(s_unknown = s_known) / 2, the rank statistic of Mann and
    Whitney: 0.5 is guessing, 1 tells them apart without fault. It asks for no threshold. NaN where
    a score is, or where one side has no nodes.

    known, unknown: novelty of nodes of learned classes and of others.  [n], [m] -> 0..1

    0.7 stands above both known scores, 0.3 above one and level with the other: (2 + 1.5) / 4.

    >>> rejection_auroc(torch.tensor([0.1, 0.3]), torch.tensor([0.7, 0.3]))
    0.875
    """
    if not (len(known) and len(unknown)) or bool(torch.cat([known, unknown]).isnan().any()):
        return float("nan")
    ranked = known.sort().values
    below = torch.searchsorted(ranked, unknown)  # known scores under each unknown one
    level = torch.searchsorted(ranked, unknown, right=True)  # and those level with it
    return float((below + level).double().mean() / (2 * len(known)))


def rejection(seen: Scored, coming: Scored, learned: LabelSpace) -> float | None:
    """Return how well nodes of classes still to come are told from nodes of the tasks so far.

    Known nodes are read where they stand in the same graph as the unknown ones, so that a graph
    that has merely grown is not mistaken for a new class: in global testing ``coming`` holds both.
    None where the next task brings no new class.
    """
    unknown = coming.novelty[coming.labels >= learned.num_classes]
    known = coming.novelty[coming.tasks < len(learned.sizes)]
    return rejection_auroc(known if len(known) else seen.novelty, unknown) if len(unknown) else None


def forward_transfer(coming: Scored, learned: LabelSpace) -> float | None:
    """Return the balanced accuracy on nodes to come whose class is known, less that of guessing.

    FWT = accuracy - 1 / known classes (Lopez-Paz and Ranzato, NeurIPS 2017, who take an untrained
    model's accuracy for guessing). Above 0, what was learned carries over to nodes that arrive
    later. None where no known class comes again: always, where every task brings new classes only.
    """
    again = (coming.tasks >= len(learned.sizes)) & (coming.labels < learned.num_classes)
    if not bool(again.any()):
        return None
    return balanced_accuracy(coming.classes[again], coming.labels[again]) - 1 / learned.num_classes
