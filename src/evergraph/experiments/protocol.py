"""Learn a task, test on all so far, and again: the continual learning protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from evergraph.evaluation.evaluator import AccuracyRows, Measures, evaluate
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
        measures: what was measured beside accuracy, by way of testing and name.
    """

    index: int
    rows: AccuracyRows
    seconds: dict[str, float]
    measures: Measures = field(default_factory=dict)  # unknown to the first version


def learn_stream(
    learner: Learner,
    stream: GraphStream,
    *,
    first: int = 0,
    testings: Sequence[Testing] = TESTINGS,  # type: ignore[assignment]
    part: str = "test",
    preview: bool = False,
) -> Iterator[TaskReport]:
    """Yield a report after each task, from task ``first`` on.

    part: the nodes tested on, ``test`` or ``validation``. preview: whether to test on what comes
    next as well, see ``evaluate``; it changes no other number.
    """
    learner.undirected_ = stream.undirected
    for index in range(first, len(stream)):
        embedded = learner.embed_seconds
        start = time.perf_counter()
        learner.fit_task(stream.open(index, cumulative=learner.cumulative))
        learned = time.perf_counter()
        training = learner.embed_seconds - embedded
        found = evaluate(learner, stream, index, testings=testings, part=part, preview=preview)
        tested = time.perf_counter()
        embedding = learner.embed_seconds - embedded
        seconds = {
            "embed": embedding,
            "train": learned - start - training,
            "evaluate": tested - learned - (embedding - training),
        }
        yield TaskReport(index, found.rows, seconds, found.measures)
