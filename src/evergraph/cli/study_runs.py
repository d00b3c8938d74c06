"""The runs that studies ask for: as many at once as fit, shown while they learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evergraph.cli.bench_progress import BenchProgress
from evergraph.cli.output import say
from evergraph.core.free_disk import check_room

if TYPE_CHECKING:
    from evergraph.experiments.bench.benchmark import Bench, Row
    from evergraph.experiments.bench.config import BenchConfig

PROCESS_BYTES = 400_000_000  # of Python with torch
RESULT_BYTES = 1_000_000_000  # of disk for each run at once: its learner after a task, twice


class StudyRuns:
    """Runs benchmarks with a live table, going on with what their folders hold.

    Attributes:
        count, failed: how many runs there were, and how many of them failed.
        notes: what they logged, each sentence once.
    """

    def __init__(self, workers: int | None, device: str | None, *, room: int) -> None:
        self.count, self.failed = 0, 0
        self.notes: dict[str, None] = {}
        self._workers, self._room = workers, room
        self._over = {} if device is None else {"device": device}

    def __call__(self, config: BenchConfig, folder: Path) -> list[Row]:
        """Run a benchmark; a run whose process was killed is tried once more, alone."""
        from evergraph.experiments.bench.pool import was_killed

        rows, workers = self._run(config, folder, self._workers)
        killed = [row for row in rows if row.failure is not None and was_killed(row.failure)]
        if killed and workers > 1:
            many = "runs were" if len(killed) > 1 else "run was"
            say(f"{len(killed)} {many} killed and tried again, one at a time", err=True)
            rows, _ = self._run(config, folder, 1)
        self.count += len(rows)
        self.failed += sum(row.failure is not None for row in rows)
        return rows

    def _run(self, config: BenchConfig, folder: Path, workers: int | None) -> tuple[list[Row], int]:
        from evergraph.experiments.bench.benchmark import open_bench, run_bench

        bench = open_bench(config, out=folder, resume=True, over=self._over)
        fitting = workers or _fitting(bench)
        check_room(folder, fitting * self._room, "what runs keep while they learn")
        with BenchProgress(bench) as progress:
            rows = run_bench(bench, workers=fitting, on_event=progress.on_event)
        self.notes |= progress.notes
        return rows, fitting


def _fitting(bench: Bench) -> int:
    """Return how many runs this machine carries at once, graphs of that size."""
    from evergraph.core.free_memory import free_memory
    from evergraph.experiments.bench.pool import default_workers

    most = min(bench.size, *(default_workers(job.config.device) for job in bench.jobs))
    each = max(_run_bytes(name) for name in {job.config.dataset.name for job in bench.jobs})
    return max(1, min(most, int(free_memory() // each)))


def _run_bytes(dataset: str) -> int:
    """Return about how much memory training a GCN on a dataset of the catalogue takes at most.

    The graph, its tasks' graphs and that of everything seen so far are held at once, and of every
    node a dozen states as wide as the hidden layer of 256.
    """
    from evergraph.datasets.catalogue import catalogue

    facts = catalogue().get(dataset)
    if facts is None:
        return 1
    held = 2 * (8 * facts.edges + 4 * facts.nodes * facts.features)
    return PROCESS_BYTES + held + 4 * 12 * 256 * facts.nodes
