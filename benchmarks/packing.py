"""A learner whose nodes come and go, before and after `compact --now` lets empty places go.

python benchmarks/packing.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, megabytes, run, times

from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner

FEATURES, CLASSES, EDGES = 64, 20, 4  # edges of a node


@dataclass(frozen=True)
class Load:
    """How many nodes live at any time, how many come with a delta, how often all are replaced."""

    living: int
    coming: int
    turns: tuple[int, ...]


FULL, QUICK = Load(5_000, 1_000, (1, 4, 8)), Load(500, 250, (1, 4))


@dataclass(frozen=True)
class Weight:
    """What a learner takes, in bytes: in memory, and its newest snapshot on the disk."""

    memory: int
    snapshot: int


def delta(number: int, load: Load) -> Delta:
    """Return delta 0, 1, ...: nodes come, and as many of the oldest go once enough live."""
    generator = torch.Generator().manual_seed(number)
    first = number * load.coming
    oldest = max(first + load.coming - load.living, 0)
    nodes = range(first, first + load.coming)
    ends = torch.randint(oldest, first + load.coming, (load.coming * EDGES,), generator=generator)
    classes = torch.randint(0, CLASSES, (load.coming,), generator=generator)
    features = torch.randn(load.coming, FEATURES, generator=generator)
    features[torch.arange(load.coming), classes] += 2.0
    return Delta(
        nodes=list(nodes),
        features=features,
        labels=[f"class {each}" for each in classes.tolist()],
        edges=[(nodes[place // EDGES], end) for place, end in enumerate(ends.tolist())],
        forgotten=list(range(max(oldest - load.coming, 0), oldest)),
    )


def weight(folder: LearnerFolder) -> Weight:
    """Weigh a folder's learner and its newest snapshot."""
    newest = folder.path / f"snapshot-{folder.compact()}"
    size = sum(path.stat().st_size for path in newest.iterdir())
    return Weight(folder.learner.status().memory, size)


def come_and_go(path: Path, load: Load, turns: int) -> list[str]:
    """Have all nodes replaced so often, then purge; return a line of the table."""
    with LearnerFolder.open(path, make=OnlineLearner) as folder:
        for number in range((1 + turns) * load.living // load.coming):
            folder.submit(delta(number, load))
        before, began = weight(folder), time.perf_counter()
        done = folder.purge()
        seconds, after = time.perf_counter() - began, weight(folder)
    return [
        f"{load.living + done.places:,}",
        megabytes(before.memory),
        megabytes(after.memory),
        times(before.memory / after.memory),
        megabytes(before.snapshot),
        megabytes(after.snapshot),
        f"{seconds:.2f}",
    ]


def tables(options: Options) -> list[Table]:
    """Measure learners that have seen more and more nodes, with as many alive."""
    load = QUICK if options.quick else FULL
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for turns in load.turns:
            rows.append(come_and_go(Path(place, str(turns)), load, turns))
            print(", ".join(rows[-1]), file=sys.stderr)
    columns = ("nodes that came", "memory MB", "afterwards", "ratio", "snapshot MB", "afterwards",
               "seconds")  # fmt: skip
    notes = (
        f"{load.living:,} nodes live at any time, with {FEATURES} features and {EDGES} edges each; "
        f"{load.coming:,} come with a delta, and as many go.",
    )
    return [Table("Before and after compact --now", columns, rows, notes)]


if __name__ == "__main__":
    run("packing", "Places of forgotten nodes", tables)
