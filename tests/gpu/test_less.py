"""Runs that do not fit on a GPU, of which a part is all that they may have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from evergraph.experiments.bench.worker import learn
from evergraph.experiments.config import RunConfig
from small_runs import job_of

ROOM = 60_000_000  # bytes: the features of the graph alone take 41 MB


@pytest.fixture
def small_gpu() -> Iterator[None]:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(ROOM / torch.cuda.mem_get_info()[1])
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("small_gpu")
@pytest.mark.parametrize("method", ["tem", "finetune"])
def test_a_run_that_does_not_fit_goes_on_with_less(tmp_path: Path, method: str) -> None:
    config = RunConfig.of(
        {
            "dataset": {"name": "synthetic", "nodes": 20_000, "classes": 4, "features": 512},
            "method": method,
            "training": {"epochs": 2},
            "device": "cuda",
        }
    )
    ending = learn(job_of(config, tmp_path / "run"), 0)
    assert ending.failure is None
    assert any("the GPU has too little memory" in note for note in ending.notes)
    assert (tmp_path / "run" / "result.json").exists()
