"""``evergraph reproduce`` as a user meets it."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from evergraph.core import packages


@pytest.fixture
def graph(tmp_path: Path) -> str:
    """Two rings of twelve nodes with an edge between them, a class each."""
    ring = np.stack([np.arange(12), np.roll(np.arange(12), 1)])
    edges = np.concatenate([ring, ring + 12, [[0], [12]]], axis=1)
    path = tmp_path / "rings.npz"
    labels = np.repeat([0, 1], 12)
    np.savez(path, edge_index=edges, x=np.eye(24, dtype=np.float32), y=labels)
    return str(path)


def test_studies_are_printed_and_kept(call, graph, tmp_path):
    out, _ = call("reproduce", "homophily", "table4", "--datasets", graph, "--out", "out")
    assert "0.960" in out  # 24 of 25 edges stay inside a ring
    assert "page: out/homophily/homophily.md" in out
    page = (tmp_path / "out" / "table4" / "table4.md").read_text()
    assert "| full subnetworks |" in page
    assert (tmp_path / "out" / "table4" / "table4-rings.csv").exists()
    assert (tmp_path / "out" / "table4" / "table4-rings.tex").exists()


@pytest.mark.usefixtures("learned_here")
def test_a_study_that_learns_is_not_run_again(call, graph, tmp_path):
    options = ["--quick", "--out", "out", "--workers", "1", "--device", "cpu", "--datasets"]
    command = ("reproduce", "strategies", *options, graph)
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


def test_wrong_names_are_one_sentence_before_any_work(call, graph, tmp_path):
    _, err = call("reproduce", "table1", "tabel2", "--out", "out", expect=2)
    assert err.startswith("error: unknown study 'tabel2': did you mean 'table2'?")
    for datasets, message in (
        ("wordnett", "unknown dataset, and no file or folder, called 'wordnett'"),
        ("absent.npz", "no such file or folder: absent.npz"),
        (" , ", "datasets must be comma-separated names or paths"),
        (
            f"{graph},rings.npz",
            "datasets must differ, not have 'rings' twice: results are stored by name",
        ),
    ):
        out, err = call("reproduce", "table1", "--datasets", datasets, "--out", "out", expect=2)
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith(f"error: {message}")
    assert not (tmp_path / "out").exists()


def test_what_a_study_needs_is_said_before_any_work(call, graph, tmp_path, monkeypatch):

    common = ("--datasets", graph, "--quick", "--out")
    with monkeypatch.context() as patch:
        patch.setattr(packages, "find_spec", lambda name: None if name == "sklearn" else name)
        _, err = call("reproduce", "homophily", "fig6", *common, "out", expect=2)
        assert err.startswith("error: fig6 needs the package sklearn, which is missing")
        patch.setattr(packages, "find_spec", lambda name: None if name == "matplotlib" else name)
        _, err = call("reproduce", "homophily", "fig4", *common, "out", expect=2)
        assert err.startswith("error: fig4 needs the package matplotlib, which is missing")
    _, err = call("reproduce", "homophily", *common, f"{graph}/out", expect=2)
    assert "cannot be written" in err
    _, err = call("reproduce", "homophily", *common, "out", "--device", "tpu", expect=2)
    assert "unknown device 'tpu'" in err
    assert not (tmp_path / "out").exists()


def test_pages_are_written_before_anything_is_printed(call, graph, tmp_path, monkeypatch):
    from evergraph.cli import bench_commands

    fail = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(bench_commands, "show_table", fail)
    _, err = call("reproduce", "homophily", "--datasets", graph, "--out", "out", expect=2)
    assert err == "error: No space left on device\n"
    assert (tmp_path / "out" / "homophily" / "homophily.md").exists()


def test_a_full_disk_is_one_sentence(call, graph, tmp_path, monkeypatch):
    from evergraph.studies import base

    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(base, "written_aside", full)
    _, err = call("reproduce", "homophily", "--datasets", graph, "--out", "out", expect=2)
    assert err == (
        "error: out/homophily cannot be written: No space left on device: the same command resumes "
        "the study\n"
    )
