"""A book of one small graph, and a finished run that belongs into it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from book_rows import BookPlan, read_plan

from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.bench.worker import learn
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import run

GRAPH = {"name": "synthetic", "nodes": 60, "classes": 4, "features": 4, "mean_degree": 4.0}


@pytest.fixture(scope="session")
def plan() -> BookPlan:
    """One graph, called small, class-IL, two seeds."""
    return BookPlan.model_validate(
        {
            "limit": 60,
            "common": {"stream": {"split_seed": "run"}},
            "methods": [
                "slda",
                {"name": "finetune", "label": "short", "run": {"training": {"epochs": 1}}},
            ],
            "chapters": [
                {
                    "name": "only",
                    "datasets": [{**GRAPH, "label": "small"}],
                    "seeds": [0, 1],
                    "common": {"device": "cpu"},
                }
            ],
            "facts": {"small": {"nodes": 60, "edges": 240, "features": 4, "classes": 4}},
            "absent": {"large": "it is <not> at hand"},
        }
    )


@pytest.fixture(scope="session")
def shipped() -> list[Job]:
    """All jobs of the shipped plan, a thousand, which take a third of a second."""
    return read_plan().jobs()


@pytest.fixture(scope="session")
def finished(plan: BookPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of slda on the small graph."""
    folder = tmp_path_factory.mktemp("finished") / "slda"
    config = next(job.config for job in plan.jobs() if job.label == "slda")
    run(RunConfig.of(config.to_dict()), out=folder)
    return folder


@pytest.fixture
def mine(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "mine"))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a book be built in this process: starting others takes seconds."""

    def work_here(work: Any, *, on_event: Callable[..., None], **_: Any) -> None:
        for job, seed in work:
            on_event(learn(job, seed))

    monkeypatch.setattr("build_book.run_work", work_here)
