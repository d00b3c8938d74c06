"""Learn a task, test on all so far, and again: the continual learning protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from evergraph.core.device import sums_by
from evergraph.evaluation.evaluator import AccuracyRows, Measures, evaluate
from evergraph.streams import GraphStream
from evergraph.streams.stream import TESTINGS, Testing
from evergraph.training import Learner

TESTS = 20  # of a run whose tasks arrive in batches, unless it is said how often to test


@dataclass(frozen=True)
class TaskReport:
    """What came of one task, or of the steps from one test to the next.

    Attributes:
        index: which task, or which step was the last.
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
    test_every: int = 1,
    threads: int | None = None,
) -> Iterator[TaskReport]:
    """Yield a report after each test, from task or step ``first`` on.

    part: the nodes tested on, ``test`` or ``validation``. preview: whether to test on what comes
    next as well, see ``evaluate``; it changes no other number. test_every: a test comes after so
    many tasks or steps, and after the last one. threads: of torch, on which the last digits depend
    then; unless given, nothing depends on how many there are, see ``fixed_sums``.
    """
    learner.undirected_ = stream.undirected
    for start_at, index in _between_tests(first, len(stream), test_every):
        embedded = learner.embed_seconds
        start = time.perf_counter()
        for step in range(start_at, index + 1):
            opened = stream.open(step, cumulative=learner.cumulative, sight=learner.sight)
            with sums_by(threads):
                learner.fit_task(opened)
        learned = time.perf_counter()
        training = learner.embed_seconds - embedded
        with sums_by(threads):
            found = evaluate(learner, stream, index, testings=testings, part=part, preview=preview)
        tested = time.perf_counter()
        embedding = learner.embed_seconds - embedded
        seconds = {
            "embed": embedding,
            "train": learned - start - training,
            "evaluate": tested - learned - (embedding - training),
        }
        yield TaskReport(index, found.rows, seconds, found.measures)


def steps_apart(steps: int, tasks: int, test_every: int | None) -> int:
    """Return after how many steps a test comes: as given, else each task or about 20 in a run.

    >>> steps_apart(7, 7, None), steps_apart(1100, 7, None), steps_apart(1100, 7, 5)
    (1, 55, 5)
    """
    if test_every is not None:
        return test_every
    return 1 if steps == tasks else -(-steps // TESTS)


def _between_tests(first: int, steps: int, apart: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last step before each test, from step ``first`` on."""
    while first < steps:
        last = min((first // apart + 1) * apart, steps) - 1
        yield first, last
        first = last + 1
