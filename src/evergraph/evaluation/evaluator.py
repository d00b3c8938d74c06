"""One row of the accuracy matrix and what is measured beside it, in every way of testing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evergraph.core.notices import say
from evergraph.evaluation.scoring import (
    Predictor,
    Scored,
    expected_calibration_error,
    forward_transfer,
    mark,
    rejection,
)
from evergraph.evaluation.yardstick import BESIDE, YARDSTICKS, Yardstick
from evergraph.streams import GraphStream
from evergraph.streams.stream import TESTINGS, Testing

AVERAGES = YARDSTICKS["class"].rows
MEASURES = ("calibration_error", "rejection_auroc", "forward_transfer", *BESIDE)

AccuracyRows = dict[str, dict[str, list[float]]]
"""rows[testing][average][j]: accuracy on task j, or what ``YARDSTICKS`` has in its place."""

Measures = dict[str, dict[str, float | None]]
"""measures[testing][name]: one number per task; None where it is not defined."""


@dataclass(frozen=True)
class Evaluation:
    """How a learner does after a task.

    Attributes:
        rows: accuracy on every task so far, by way of testing and of averaging.
        measures: by way of testing and name.
    """

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
    what comes next as well, for ``rejection_auroc`` and ``forward_transfer``; the model then runs
    on the next task's graph too. ``calibration_error`` is over all nodes tested so far. Of nodes
    with several labels or numbers there is nothing but what ``YARDSTICKS`` names.
    """
    rows: AccuracyRows = {}
    measures: Measures = {}
    for testing in testings:
        seen = mark(learner, stream.exams(index, testing, part))
        rows[testing] = _rows(seen, stream.met(index), YARDSTICKS[stream.kind])
        if stream.kind != "class":
            measures[testing] = _beside(seen, YARDSTICKS[stream.kind])
            continue
        if testing == testings[0] and index + 1 == len(stream):
            _say_collapse(learner, stream, seen)
        error = expected_calibration_error(seen.confidence, seen.right)
        ahead = _ahead(learner, stream, index, seen, testing, part) if preview else {}
        measures[testing] = {"calibration_error": _meaningful(error), **ahead}
    return Evaluation(rows, measures)


def _say_collapse(learner: Predictor, stream: GraphStream, seen: Scored) -> None:
    """Say that a learner gives every node the same class at the end, where nodes have several."""
    if len(seen.classes.unique()) == 1 < len(seen.labels.unique()):
        only = stream.classes[int(seen.classes[0])]
        say(
            getattr(learner, "name", "learner"),
            f"at the end every test node is given class {only}: the model has collapsed, or has "
            "forgotten every other class",
        )


def _rows(seen: Scored, tasks: int, yardstick: Yardstick) -> dict[str, list[float]]:
    order = seen.tasks.argsort(stable=True)
    counts = torch.bincount(seen.tasks, minlength=tasks).tolist()
    given, right = (each[order].split(counts) for each in seen.compared)
    of_task = list(zip(given, right, strict=True))
    return {
        name: [average(answers, labels) for answers, labels in of_task]
        for name, average in yardstick.rows.items()
    }


def _beside(seen: Scored, yardstick: Yardstick) -> dict[str, float | None]:
    return {name: _meaningful(metric(*seen.compared)) for name, metric in yardstick.beside.items()}


def _ahead(
    learner: Predictor, stream: GraphStream, index: int, seen: Scored, testing: Testing, part: str
) -> dict[str, float | None]:
    exams = stream.preview(index, testing, part)
    if not exams:
        return {"rejection_auroc": None, "forward_transfer": None}
    coming, learned = mark(learner, exams), stream.label_space(index)
    return {
        "rejection_auroc": _meaningful(rejection(seen, coming, learned)),
        "forward_transfer": forward_transfer(coming, learned),
    }


def _meaningful(value: float | None) -> float | None:
    """Return None for NaN, which a learner that has diverged gives and JSON cannot hold."""
    return None if value is None or math.isnan(value) else value
