"""Small runs that several tests of experiments stop, resume and compare."""

import time
from pathlib import Path
from typing import Any

from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.config import RunConfig
from evergraph.experiments.protocol import TaskReport
from evergraph.experiments.runner import Observer
from evergraph.experiments.store import SeedStore

CLOCKS = ("seconds", "peak_rss_bytes")  # of a result: what no two runs have in common


def small(**values: Any) -> RunConfig:
    """A configuration of `tem` that is learned in a moment, three tasks of two classes."""
    base: dict[str, Any] = {
        "method": "tem",
        "dataset": {"name": "synthetic", "nodes": 120, "classes": 6, "features": 4},
        "training": {"epochs": 2, "batch_size": 64},
        "memory": {"budget": 3},
        "device": "cpu",
    }
    return RunConfig.of(base | values)


def job_of(config: RunConfig, folder: Path) -> Job:
    """Return a configuration as a row of a benchmark whose names do not matter."""
    return Job("method", "dataset", "setting", config, folder)


def comparable(result: dict[str, Any], *apart: str) -> dict[str, Any]:
    """Everything but clocks and sizes of the process."""
    return {key: value for key, value in result.items() if key not in (*CLOCKS, *apart)}


_keep_task = SeedStore.keep_task


def keep_task_and_wait(store: SeedStore, *given: Any, **more: Any) -> None:
    """Keep a task, and go no further: in the place of ``SeedStore.keep_task`` of what is killed."""
    _keep_task(store, *given, **more)
    time.sleep(600)


class StopError(Exception):
    """Stands for Ctrl-C."""


def stop_after(tests: int) -> Observer:
    """Stop a run after so many tests, over all of its seeds."""
    seen: list[int] = []

    def on_task(seed: int, report: TaskReport) -> None:
        seen.append(report.index)
        if len(seen) == tests:
            raise StopError

    return Observer(on_task=on_task)
