"""The continual learning loop: learn a task, test on all tasks so far, repeat."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evergraph.core.resources import SharedCache, sums_by
from evergraph.evaluation.evaluator import AccuracyRows, Measures, evaluate
from evergraph.streams import GraphStream
from evergraph.streams.task import TESTINGS, Testing
from evergraph.training import Learner

TESTS_OF_BATCHES = 20  # default number of tests if tasks arrive in batches


@dataclass(frozen=True)
class TaskReport:
    """Report of one task, or of the steps between two tests.

    Attributes:
        index: the task, or the last step.
        rows, measures: see ``Evaluation``.
        seconds: spent on ``embed``, ``train`` and ``evaluate``; embeddings that another method of
            the same command has computed count as if they had been computed again.
    """

    index: int
    rows: AccuracyRows
    seconds: dict[str, float]
    measures: Measures


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

    part: the nodes to test on, ``test`` or ``validation``. preview: whether to test on the next
    task as well, see ``evaluate``; this changes no other number. test_every: the number of tasks or
    steps between tests; there is also a test after the last one. threads: torch's threads, on which
    the last digits then depend; if not given, results do not depend on the number of threads, see
    ``fixed_sums``.
    """
    learner.undirected_ = stream.undirected
    cache = learner.resources.cache or SharedCache()
    while first < len(stream):
        index = min((first // test_every + 1) * test_every, len(stream)) - 1  # the last to learn
        embedded, saved = learner.embed_seconds, cache.saved
        start = time.perf_counter()
        for step in range(first, index + 1):
            opened = stream.open(step, cumulative=learner.cumulative, sight=learner.sight)
            with sums_by(threads):
                learner.fit_task(opened)
        learned = time.perf_counter()
        training = learner.embed_seconds - embedded
        with sums_by(threads):
            evaluation = evaluate(
                learner, stream, index, testings=testings, part=part, preview=preview
            )
        tested = time.perf_counter()
        embedding = learner.embed_seconds - embedded
        seconds = {
            "embed": embedding + cache.saved - saved,
            "train": learned - start - training,
            "evaluate": tested - learned - (embedding - training),
        }
        yield TaskReport(index, evaluation.rows, seconds, evaluation.measures)
        first = index + 1


def steps_apart(steps: int, tasks: int, test_every: int | None) -> int:
    """Return the number of steps between tests; by default a task, or 1/20 of a run in batches."""
    if test_every is not None:
        return test_every
    return 1 if steps == tasks else -(-steps // TESTS_OF_BATCHES)
