"""Single-node deltas of many submitters: taken in together, and one at a time as before.

python benchmarks/group_commit.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, run, times

from evergraph.core.seeding import seeded
from evergraph.online.delta import Delta
from evergraph.online.folder.journal import JournalEntry
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.writer import FolderWriter
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner

SUBMITTERS = (1, 8, 32)
FEATURES = 32
CLASSES = 10
EDGES = 3  # that a node brings


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        known: nodes before the first delta.
        deltas: that are submitted, by all together.
    """

    known: int
    deltas: int


FULL, QUICK = Size(10_000, 192), Size(300, 32)


@dataclass(frozen=True)
class Measured:
    """What some deltas took.

    Attributes:
        seconds: on the wall.
        cpu: of all threads.
        commits: waits for the disk.
        late: the 95th percentile of how long a delta waited for its answer, in seconds.
    """

    seconds: float
    cpu: float
    commits: int
    late: float


def nodes(first: int, count: int, *, near: int) -> Delta:
    """Return nodes with labels whose edges go to nodes among the first ``near``."""
    generator = seeded(first, "group commit")
    ids = list(range(first, first + count))
    ends = torch.randint(near, (count, EDGES), generator=generator).tolist()
    return Delta(
        nodes=ids,
        features=torch.randn(count, FEATURES, generator=generator),
        labels=[f"class {node % CLASSES}" for node in ids],
        edges=[(node, end) for node, row in zip(ids, ends, strict=True) for end in row],
    )


def light() -> OnlineLearner:
    """Return a learner that costs little, so that the folder's own part shows."""
    return OnlineLearner(head=AnalyticHead(width=64))


HEADS: dict[str, Callable[[], OnlineLearner]] = {
    "auto": OnlineLearner,
    "analytic of width 64": light,
}


def measured(
    place: Path, make: Callable[[], OnlineLearner], size: Size, submitters: int, *, together: bool
) -> Measured:
    """Have threads submit deltas of one node each, all at once or each when it is its turn."""
    turn: AbstractContextManager[object] = nullcontext() if together else threading.Lock()
    with LearnerFolder.open(place, make=make, snapshot_every=10**9) as folder:
        folder.submit(nodes(0, size.known, near=size.known))
        folder.submit(nodes(size.known, 1, near=size.known))  # whatever is made on first use
        commits = _counted(folder)
        waited: list[float] = []

        def submit(own: int) -> None:
            for number in range(own, size.deltas, submitters):
                delta = nodes(size.known + 1 + number, 1, near=size.known)
                start = time.perf_counter()
                with turn:
                    folder.submit(delta)
                waited.append(time.perf_counter() - start)

        start, cpu = time.perf_counter(), time.process_time()
        _in_threads(submit, submitters)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        assert folder.seq == size.deltas + 2, "every delta was taken in once"
    late = statistics.quantiles(waited, n=20)[-1]
    return Measured(seconds, cpu, len(commits), late)


def _counted(folder: LearnerFolder) -> list[int]:
    """Return a list that grows with every commit: by how many deltas were in it."""
    journal = cast(FolderWriter, folder._files)._journal
    commits: list[int] = []
    write = journal.write

    def counted(entries: Sequence[JournalEntry]) -> None:
        commits.append(len(entries))
        write(entries)

    setattr(journal, "write", counted)  # noqa: B010
    return commits


def _in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(own,)) for own in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def compared(make: Callable[[], OnlineLearner], size: Size, submitters: int) -> list[list[str]]:
    """Return a row for one at a time, and a row for together."""
    best: dict[bool, Measured] = {}
    for together in (False, True):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "folder")
            best[together] = measured(folder, make, size, submitters, together=together)
    before = best[False]
    return [
        [
            f"{submitters}",
            "together" if way else "one at a time",
            f"{size.deltas / one.seconds:,.0f}",
            f"{one.commits}",
            f"{one.cpu:.2f}",
            f"{1000 * one.late:.0f}",
            "" if one is before else times(before.cpu / one.cpu),
            "" if one is before else times(before.seconds / one.seconds),
        ]
        for way, one in best.items()
    ]


def tables(options: Options) -> list[Table]:
    """Measure every number of submitters."""
    size = QUICK if options.quick else FULL
    return [_table(head, make, size) for head, make in HEADS.items()]


def _table(head: str, make: Callable[[], OnlineLearner], size: Size) -> Table:
    rows = [row for submitters in SUBMITTERS for row in compared(make, size, submitters)]
    columns = (
        "submitters",
        "taken in",
        "deltas a second",
        "waits for the disk",
        "CPU seconds",
        "p95 of an answer, ms",
        "CPU saved",
        "faster",
    )
    notes = (
        f"{size.deltas} deltas of one labelled node and {EDGES} edges each, on {size.known:,} "
        "nodes. Each submitter is a thread that sends its next delta when the last one "
        "was answered: on the disk, and learned.",
        "One at a time is how deltas were taken in before: a commit, an update of embeddings and "
        "a look of the head for each. Together, deltas that wait share them; a single submitter "
        "has nobody to share with.",
    )
    return Table(f"Deltas of many submitters, head {head}", columns, rows, notes)


if __name__ == "__main__":
    run("group_commit", "Group commit", tables)
