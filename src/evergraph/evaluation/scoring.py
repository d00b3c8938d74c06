"""A learner's answers beside the right ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from evergraph.core.label_space import Predictions
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
