"""Tests of a learner: rows of the accuracy matrix, what is computed from it, further measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import say
from evergraph.core.label_space import LabelSpace, Predictions
from evergraph.core.targets.one_class import balanced_accuracy
from evergraph.graphs import Graph
from evergraph.streams import Exam, GraphStream
from evergraph.streams.task import TESTINGS, Testing

AccuracyMatrix = npt.NDArray[np.float64]
"""M[i, j]: accuracy on task j at test i; NaN if task j had not begun.  [tests, tasks]

With a test after every task, test i follows task i, and tasks j > i have not begun.
"""
METRIC_NAMES = {
    "balanced": "accuracy, class-balanced",
    "plain": "accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "average_precision": "average precision",
    "r2": "R2",
    "mae": "mean absolute error",
}
BINS = 15
MEASURES = ("calibration_error", "rejection_auroc", "forward_transfer")  # of classes
AccuracyRows = dict[str, dict[str, list[float]]]
"""rows[testing][average][j]: accuracy on task j, or another of the ``rows`` of a target."""
Measures = dict[str, dict[str, float | None]]
"""measures[testing][name]: one number per task; None if it is not defined."""


def matrix_of(rows: Sequence[Sequence[float]]) -> AccuracyMatrix:
    """Build the matrix from its rows, each holding a value for every task that has begun.

    >>> matrix_of([[0.5], [0.75], [0.5, 1.0]])  # task 0 arrived in two steps
    array([[0.5 ,  nan],
           [0.75,  nan],
           [0.5 , 1.  ]])
    """
    matrix = np.full((len(rows), len(rows[-1])), np.nan)
    for i, row in enumerate(rows):
        matrix[i, : len(row)] = row
    return matrix


def average_accuracy_curve(matrix: AccuracyMatrix) -> npt.NDArray[np.float64]:
    """Return AA after each test: the mean of row i.  [tests]

    >>> average_accuracy_curve(matrix_of([[0.9], [0.5, 0.7]]))
    array([0.9, 0.6])
    """
    means: npt.NDArray[np.float64] = np.nanmean(matrix, axis=1)
    return means


def average_forgetting_curve(matrix: AccuracyMatrix) -> npt.NDArray[np.float64]:
    """Return AF from the first test after one at which a task was learned.

    AF_i = mean over tasks j learned before test i of M[i, j] - M[l_j, j], where l_j is the last
    test before the next task after j began. With a test after every task, l_j is task j's own test,
    AF_i = mean over j < i of M[i, j] - M[j, j], and there are tasks - 1 values.

    >>> average_forgetting_curve(matrix_of([[0.75], [0.5, 0.5]]))
    array([-0.25])
    >>> average_forgetting_curve(matrix_of([[0.5], [0.75], [0.5, 0.5], [0.25, 1.0]]))
    array([-0.25, -0.5 ])
    """
    begun = (~np.isnan(matrix)).sum(axis=1)  # tasks begun at each test, ascending
    learned = np.array(  # l_j of each task, ascending
        [np.flatnonzero(begun == begun[begun > j][0])[-1] for j in range(begun[-1])]
    )
    change = matrix - matrix[learned, np.arange(len(learned))]
    before = [int((learned < i).sum()) for i in range(len(matrix))]
    return np.array([change[i, :tasks].mean() for i, tasks in enumerate(before) if tasks])


def average_accuracy(matrix: AccuracyMatrix) -> float:
    """Return AA after the last test."""
    return float(average_accuracy_curve(matrix)[-1])


def anytime_accuracy(matrix: AccuracyMatrix) -> float:
    """Return the mean of AA over all tests: the accuracy along the way.

    Average anytime accuracy, 1/n Σ_i AA_i over n tests (Caccia et al. 2022). Online, where a task
    is tested while it arrives, it measures speed of learning as well as forgetting.

    >>> anytime_accuracy(matrix_of([[0.9], [0.5, 0.7]]))
    0.75
    """
    return float(average_accuracy_curve(matrix).mean())


def average_forgetting(matrix: AccuracyMatrix) -> float:
    """Return AF after the last test; negative means forgetting, 0 if there is only one task."""
    curve = average_forgetting_curve(matrix)
    return float(curve[-1]) if len(curve) else 0.0


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean and the sample standard deviation, None for a single value."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": deviation}


def main_key(result: Mapping[str, Any]) -> str:
    """Return the key of the main measure of a stored result.

    >>> main_key({"metric": {"name": "micro F1", "key": "micro_f1"}})
    'micro_f1'
    """
    return str(result["metric"]["key"])


class Predictor(Protocol):
    """Anything that classifies nodes in a graph."""

    def answer(self, graph: Graph, nodes: Tensor, tasks: Tensor | None = None) -> Predictions:
        """Return class, confidence and novelty of each node."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Scored(Predictions):
    """Predictions for test nodes, and the truth: see ``Exam``."""

    labels: Tensor  # the true classes.  int64 [nodes]
    tasks: Tensor  # the task of each node.  int64 [nodes]
    targets: Tensor | None = None  # true multi-label or regression targets.  [nodes, targets]


def predictions_on(learner: Predictor, exams: Sequence[Exam]) -> Scored:
    """Classify every set of test nodes once; return predictions with the true classes."""
    predictions = [learner.answer(exam.graph, exam.nodes, exam.tasks) for exam in exams]
    values = [p.values for p in predictions if p.values is not None]
    targets = [exam.targets for exam in exams if exam.targets is not None]
    return Scored(
        classes=torch.cat([p.classes for p in predictions]),
        confidence=torch.cat([p.confidence for p in predictions]),
        novelty=torch.cat([p.novelty for p in predictions]),
        labels=torch.cat([exam.labels for exam in exams]),
        tasks=torch.cat([exam.tasks for exam in exams]),
        values=torch.cat(values) if values else None,
        targets=torch.cat(targets) if targets else None,
    )


def expected_calibration_error(confidence: Tensor, right: Tensor, *, bins: int = BINS) -> float:
    """Return the gap between confidence and accuracy (Guo et al., ICML 2017).

    ECE = Σ_b n_b/n · |accuracy_b - confidence_b| over bins of equal width in (0, 1], where bin b
    holds the nodes whose confidence lies in ((b-1)/bins, b/bins]. All nodes have equal weight, as
    in the paper: unlike the accuracies here, it is not class-balanced. 0 if predictions with 80 %
    confidence are right in 80 of 100 cases; NaN if a confidence is.

    confidence: [nodes]; right: whether the prediction is right, bool [nodes] -> 0..1

    Two of three predictions at 0.9 are right, and none of one at 0.5: 3/4 · 0.233 + 1/4 · 0.5.

    >>> confidence = torch.tensor([0.9, 0.9, 0.9, 0.5])
    >>> round(expected_calibration_error(confidence, torch.tensor([True, True, False, False])), 3)
    0.3
    """
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    # Compared in their own type: a float32 on an edge must not cross it when widened.
    bin_of_node = torch.bucketize(confidence, edges.to(confidence.dtype))
    gaps = right.double() - confidence.double()
    gap_of_bin = torch.zeros(bins, dtype=torch.float64).index_add_(0, bin_of_node, gaps)
    return float(gap_of_bin.abs().sum() / len(confidence))


def rejection_auroc(known: Tensor, unknown: Tensor) -> float:
    """Return how often an unknown node has a higher novelty than a known one (AUROC).

    AUROC = P(s_unknown > s_known) + P(s_unknown = s_known) / 2, the rank statistic of Mann and
    Whitney: 0.5 is chance, 1 a perfect separation. It needs no threshold. NaN if a score is, or if
    one side has no nodes.

    known, unknown: novelty of nodes of learned classes and of others.  [n], [m] -> 0..1

    0.7 is above both known scores, 0.3 above one and equal to the other: (2 + 1.5) / 4.

    >>> rejection_auroc(torch.tensor([0.1, 0.3]), torch.tensor([0.7, 0.3]))
    0.875
    """
    if not (len(known) and len(unknown)) or bool(torch.cat([known, unknown]).isnan().any()):
        return float("nan")
    ranked = known.sort().values
    below = torch.searchsorted(ranked, unknown)  # known scores below each unknown one
    below_or_equal = torch.searchsorted(ranked, unknown, right=True)
    return float((below + below_or_equal).double().mean() / (2 * len(known)))


def rejection(seen: Scored, coming: Scored, learned: LabelSpace) -> float | None:
    """Return how well nodes of future classes are separated from nodes of the tasks so far.

    Known nodes are taken from the same graph as the unknown ones if possible, so that mere growth
    of the graph is not mistaken for a new class: in global testing ``coming`` holds both. None if
    the next task brings no new class.
    """
    unknown = coming.novelty[coming.labels >= learned.num_classes]
    known = coming.novelty[coming.tasks < len(learned.sizes)]
    if not len(unknown):
        return None
    return rejection_auroc(known if len(known) else seen.novelty, unknown)


def forward_transfer(coming: Scored, learned: LabelSpace) -> float | None:
    """Return the balanced accuracy on future nodes of known classes, minus that of chance.

    FWT = accuracy - 1 / known classes (Lopez-Paz and Ranzato, NeurIPS 2017, who use an untrained
    model's accuracy as chance). Above 0, knowledge transfers to nodes that arrive later. None if no
    known class returns, as always if every task brings only new classes.
    """
    returning = (coming.tasks >= len(learned.sizes)) & (coming.labels < learned.num_classes)
    if not bool(returning.any()):
        return None
    accuracy = balanced_accuracy(coming.classes[returning], coming.labels[returning])
    return accuracy - 1 / learned.num_classes


@dataclass(frozen=True)
class Evaluation:
    """The performance of a learner after a task; see ``AccuracyRows`` and ``Measures``."""

    rows: AccuracyRows
    measures: Measures


def evaluate(
    learner: Predictor,
    stream: GraphStream,
    index: int,
    *,
    testings: Sequence[Testing] = TESTINGS,  # type: ignore[assignment]
    part: str = "test",
    preview: bool = False,
) -> Evaluation:
    """Test a learner after task or step ``index`` on every task that has begun by then.

    part: ``test``, or ``validation`` for choosing hyper-parameters. preview: whether to test on
    the next task as well, for ``rejection_auroc`` and ``forward_transfer``; the model then also
    runs on the next task's graph. ``calibration_error`` is over all nodes tested so far. For
    multi-label and regression targets there are only those of its ``Target``.
    """
    rows: AccuracyRows = {}
    measures: Measures = {}
    target = stream.target
    for testing in testings:
        seen = predictions_on(learner, stream.exams(index, testing, part))
        order = seen.tasks.argsort(stable=True)
        counts = torch.bincount(seen.tasks, minlength=stream.met(index)).tolist()
        predicted, true = seen.classes, seen.labels
        if seen.values is not None and seen.targets is not None:
            predicted, true = seen.values, seen.targets
        predicted_by_task = predicted[order].split(counts)
        true_by_task = true[order].split(counts)
        rows[testing] = {
            name: list(map(metric, predicted_by_task, true_by_task))
            for name, metric in target.rows.items()
        }
        if not target.is_class:
            measures[testing] = {
                name: _meaningful(metric(predicted, true)) for name, metric in target.beside.items()
            }
            continue
        at_the_end = testing == testings[0] and index + 1 == len(stream)
        if at_the_end and len(seen.classes.unique()) == 1 < len(seen.labels.unique()):
            only = stream.classes[int(seen.classes[0])]
            say(
                getattr(learner, "name", "learner"),
                f"at the end every test node is given class {only}: the model has collapsed, or "
                "has forgotten every other class",
            )
        error = expected_calibration_error(seen.confidence, seen.classes == seen.labels)
        measures[testing] = {"calibration_error": _meaningful(error)}
        if preview:
            measures[testing] |= {"rejection_auroc": None, "forward_transfer": None}
            if exams := stream.preview(index, testing, part):
                coming = predictions_on(learner, exams)
                learned = stream.label_space(index)
                measures[testing] |= {
                    "rejection_auroc": _meaningful(rejection(seen, coming, learned)),
                    "forward_transfer": forward_transfer(coming, learned),
                }
    return Evaluation(rows, measures)


def _meaningful(value: float | None) -> float | None:
    """Return None for NaN, which results from divergence and cannot be stored in JSON."""
    return None if value is None or math.isnan(value) else value
