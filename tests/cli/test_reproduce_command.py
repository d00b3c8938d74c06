"""``evergraph reproduce`` as a user meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def graph(tmp_path: Path) -> str:
    """Two rings of twelve nodes with an edge between them, a class each."""
    ring = np.stack([np.arange(12), np.roll(np.arange(12), 1)])
    edges = np.concatenate([ring, ring + 12, [[0], [12]]], axis=1)
    path = tmp_path / "rings.npz"
    labels = np.repeat([0, 1], 12)
    np.savez(path, edge_index=edges, x=np.eye(24, dtype=np.float32), y=labels)
    return str(path)


def test_studies_are_printed_and_kept(call: Any, graph: str, tmp_path: Path) -> None:
    out, _ = call("reproduce", "homophily", "table4", "--datasets", graph, "--out", "out")
    assert "0.960" in out  # 24 of 25 edges stay inside a ring
    assert "page: out/homophily/homophily.md" in out
    page = (tmp_path / "out" / "table4" / "table4.md").read_text()
    assert "| full subnetworks |" in page
    assert (tmp_path / "out" / "table4" / "table4-rings.csv").exists()
    assert (tmp_path / "out" / "table4" / "table4-rings.tex").exists()


def test_a_study_that_learns_runs_in_workers_and_is_not_run_again(
    call: Any, graph: str, tmp_path: Path
) -> None:
    command = ("reproduce", "strategies", "--quick", "--datasets", graph, "--out", "out",
               "--workers", "1", "--device", "cpu")  # fmt: skip
    out, err = call(*command)
    assert "S1" in out
    assert "H2GCN" in out
    assert "not to be quoted" in out
    assert "done" in err
    results = sorted((tmp_path / "out").rglob("result.json"))
    before = [path.read_bytes() for path in results]
    again, err = call(*command)
    assert again == out
    assert "AA" not in err  # nothing was learned
    assert [path.read_bytes() for path in results] == before


def test_a_wrong_name_is_one_sentence_before_any_work(call: Any, tmp_path: Path) -> None:
    _, err = call("reproduce", "table1", "tabel2", "--out", "out", expect=2)
    assert err.startswith("error: unknown study 'tabel2': did you mean 'table2'?")
    assert not (tmp_path / "out").exists()
