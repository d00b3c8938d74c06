"""A small benchmark that several tests look at: starting its worker takes seconds."""

from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from evergraph.experiments.bench import pool
from evergraph.experiments.bench.benchmark import Row, open_bench, run_bench
from evergraph.experiments.bench.jobs import BenchConfig
from evergraph.experiments.bench.worker import Event

SMALL: dict[str, Any] = {
    "datasets": [{"name": "synthetic", "nodes": 300, "classes": 6, "features": 8, "noise": 1.2}],
    "seeds": [0, 1],
    "common": {"device": "cpu", "training": {"epochs": 3, "batch_size": 64}},
    "methods": [
        {"name": "finetune", "grid": {"training.lr": [1e-6, 1e-2]}},
        {"name": "tem", "label": "tem-tiny", "run": {"memory": {"budget": 3}}},
    ],
}


@dataclass(frozen=True)
class Learned:
    """A benchmark that was run: where, what it told, what came of it."""

    config: BenchConfig
    out: Path
    events: list[Event]
    rows: list[Row]


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """Run the small benchmark in one worker, which has one thread."""
    out = tmp_path_factory.mktemp("bench") / "out"
    config = BenchConfig.of(SMALL)
    events = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "threads_of", lambda workers: 1)
        patch.setattr(pool, "get_context", lambda _: get_context("fork"))
        rows = run_bench(open_bench(config, out=out), workers=1, on_event=events.append)
    return Learned(config, out, events, rows)
