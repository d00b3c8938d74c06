"""Learn a task, test on all so far, and again: the continual learning protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evergraph.evaluation.evaluator import AccuracyRows, accuracy_rows
from evergraph.streams import GraphStream
from evergraph.streams.stream import TESTINGS, Testing
from evergraph.training import Learner


@dataclass(frozen=True)
class TaskReport:
    """What came of one task.

    Attributes:
        index: which task.
        rows: accuracy on every task so far, by way of testing and of averaging.
        seconds: spent on ``embed``, ``train`` and ``evaluate``.
    """

    index: int
    rows: AccuracyRows
    seconds: dict[str, float]


def learn_stream(
    learner: Learner,
    stream: GraphStream,
    *,
    first: int = 0,
    testings: Sequence[Testing] = TESTINGS,  # type: ignore[assignment]
    part: str = "test",
) -> Iterator[TaskReport]:
    """Yield a report after each task, from task ``first`` on.

    part: the nodes tested on, ``test`` or ``validation``.
    """
    for index in range(first, len(stream)):
        embedded = learner.embed_seconds
        start = time.perf_counter()
        learner.fit_task(stream.open(index, cumulative=learner.cumulative))
        learned = time.perf_counter()
        training = learner.embed_seconds - embedded
        rows = accuracy_rows(learner, stream, index, testings=testings, part=part)
        tested = time.perf_counter()
        embedding = learner.embed_seconds - embedded
        seconds = {
            "embed": embedding,
            "train": learned - start - training,
            "evaluate": tested - learned - (embedding - training),
        }
        yield TaskReport(index, rows, seconds)
