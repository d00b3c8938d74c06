"""Numbers that do not depend on how many threads there are, and runs that say when they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import evergraph as eg
from evergraph.core.device import exactly_threads
from evergraph.core.errors import ResultsError
from evergraph.nn import Tuned

# Long sums, which torch and BLAS cut by the number of threads: 1,500 rows, 600 features.
FULL = {"epochs": 2, "batch_size": "full"}
NETWORKS = FULL | {"backbone": {"name": "tuned", "hidden": 128}}
WIDE = {"backbone": {"name": "random-features", "width": 600}}
VIEWS = {"backbone": {"name": "view-features", "width": 600, "views": ["2", "0"]}}


@pytest.fixture(scope="module")
def graph() -> eg.Graph:
    """Two tasks of 2,500 nodes each."""
    return eg.load("synthetic", nodes=5000, classes=4, features=160, noise=2.0)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("tem", FULL), ("joint", NETWORKS), ("analytic", WIDE), ("auto", VIEWS)],
)
def test_a_run_is_the_same_with_any_number_of_threads(
    method: str, settings: dict[str, Any], graph: eg.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuned, "CANDIDATES", Tuned.CANDIDATES[::3])  # two of five
    one, two = (learned(graph, method, threads, **settings) for threads in (1, 2))
    assert one.seeds[0].rows == two.seeds[0].rows
    assert (two.to_dict()["machine"]["threads"], two.config.threads) == (2, None)
    pairs = zip(one.learner.state().items(), two.learner.state().values(), strict=True)
    assert [name for (name, ours), theirs in pairs if not torch.equal(ours, theirs)] == []


def learned(graph: eg.Graph, method: str, threads: int, **settings: Any) -> eg.RunResult:
    with exactly_threads(threads):
        return eg.run(graph, method, device="cpu", progress=False, **settings)


def test_a_number_of_threads_is_part_of_what_a_run_is(tmp_path: Path) -> None:
    def again(**settings: Any) -> eg.RunResult:
        return eg.run(
            "synthetic", "slda", out=tmp_path, resume=True, progress=False, device="cpu", **settings
        )

    result = again(threads=2)
    assert result.to_dict()["config"]["threads"] == 2
    with pytest.raises(ResultsError, match="threads is 2 there and None here"):
        again()
