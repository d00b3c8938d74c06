"""One row of the accuracy matrix, in every way of testing at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from evergraph.evaluation.accuracy import balanced_accuracy, plain_accuracy
from evergraph.graphs import Graph
from evergraph.streams import GraphStream
from evergraph.streams.stream import TESTINGS, Testing

AVERAGES = {"balanced": balanced_accuracy, "plain": plain_accuracy}

AccuracyRows = dict[str, dict[str, list[float]]]
"""rows[testing][average][j]: accuracy on task j."""


class Predictor(Protocol):
    """Anything that names the class of nodes in a graph."""

    def predict(self, graph: Graph, nodes: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Return the class of each node, numbered in order of arrival."""
        ...


def accuracy_rows(
    learner: Predictor,
    stream: GraphStream,
    index: int,
    *,
    testings: Sequence[Testing] = TESTINGS,  # type: ignore[assignment]
    part: str = "test",
) -> AccuracyRows:
    """Test a learner after task ``index`` on every task so far.

    part: ``test``, or ``validation`` for choosing hyper-parameters.
    """
    return {testing: _rows(learner, stream, index, testing, part) for testing in testings}


def _rows(
    learner: Predictor, stream: GraphStream, index: int, testing: Testing, part: str
) -> dict[str, list[float]]:
    exams = stream.exams(index, testing, part)
    predicted = torch.cat([learner.predict(e.graph, e.nodes, e.tasks) for e in exams])
    labels = torch.cat([exam.labels for exam in exams])
    tasks = torch.cat([exam.tasks for exam in exams])
    of_task = [tasks == task for task in range(index + 1)]
    return {
        name: [average(predicted[rows], labels[rows]) for rows in of_task]
        for name, average in AVERAGES.items()
    }
