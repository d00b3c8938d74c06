"""``evergraph import`` as a user meets it."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from evergraph.datasets.importing.edge_table import EdgeTable

NODES = "id,label,f\n" + "".join(f"n{node},{node % 4},{node}\n" for node in range(60))
EDGES = "source,target\n" + "".join(
    f"n{a},n{b}\n" for a, b in np.random.default_rng(0).integers(60, size=(150, 2))
)


@pytest.fixture
def tables(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "e.csv").write_text(EDGES)
    (tmp_path / "n.csv").write_text(NODES)
    return "e.csv", "n.csv"


def test_import_then_info_then_run(call, tables):
    report = json.loads(call("import", *tables, "--out", "g", "--json")[0])
    assert (report["nodes"], report["edges"], report["classes"]) == (60, 150, 4)
    assert report["entries"] == 2 * (150 - report["loops"] - report["doubles"])
    facts = json.loads(call("info", "g", "--verify", "--json")[0])
    assert facts["edges"] == facts["edges_both_ways"] == report["entries"]
    out, _ = call("run", "--dataset", "g", "--method", "slda", "--json")
    assert len(json.loads(out)["accuracy_matrix"][0]["local"]["plain"]) == 2  # tasks
    # The table has counts and the checksum.
    out, _ = call("import", *tables, "--out", "h", "--directed", "--memory-limit", "4GB")
    facts = json.loads(Path("h", "graph.json").read_text())
    assert not facts["undirected"]
    for word in ("nodes", "60", "edges", "150", "entries", facts["sha256"], "evergraph info h"):
        assert word in out
    out, err = call("import", *tables, "--out", "h", "--directed")
    assert "h, which already existed" in out
    assert "h: already holds the graph of these tables" in err


def test_overwrite(call, tables):
    call("import", *tables, "--out", "g")
    _, err = call("import", *tables, "--out", "g", "--directed", expect=2)
    assert err.startswith("error: g: exists and is not")
    assert "--overwrite" in err
    call("import", *tables, "--out", "g", "--directed", "--overwrite")
    assert not json.loads(Path("g", "graph.json").read_text())["undirected"]


@pytest.mark.parametrize("listed", ["n1,n2,n3\n", "n1,n99\n", "n1\n"])
def test_a_bad_last_line_is_one_sentence(call, tables, listed):
    Path("e.csv").write_text(EDGES + listed)
    out, err = call("import", *tables, "--out", "g", expect=2)
    assert err.startswith("error: e.csv: ")
    assert "row 151" in err
    assert (out, err.count("\n")) == ("", 1)
    assert not Path("g").exists()


def test_interrupted_it_says_how_to_go_on(call, tables, monkeypatch):
    stop = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr(EdgeTable, "write", stop)
        _, err = call("import", *tables, "--out", "g", expect=130)
    assert "interrupted: run the same command again to continue" in err
    assert not Path("g").exists()
    _, err = call("import", *tables, "--out", "g")
    assert "g.partial: resuming an earlier import" in err


def test_info_refuses_what_is_not_whole(call, tables):
    call("import", *tables, "--out", "g")
    values = np.load("g/features.npy", mmap_mode="r+")
    values[0] = 7
    values.flush()
    call("info", "g")
    assert "features.npy: its contents have changed" in call("info", "g", "--verify", expect=2)[1]
    os.truncate("g/features.npy", 150)
    assert "features.npy: has 150 bytes instead of" in call("info", "g", expect=2)[1]
    assert "not e.csv" in call("info", "e.csv", "--verify", expect=2)[1]


def test_a_graph_without_tasks_is_shown_all_the_same(call, tmp_path):
    (tmp_path / "nodes.csv").write_text("id,label,x\na,u,1\nb,u,2\nc,v,3\n")
    (tmp_path / "edges.csv").write_text("source,target\n")
    call("import", "edges.csv", "nodes.csv", "--out", "graph")
    facts = json.loads(call("info", "graph", "--json")[0])
    assert (facts["tasks"], facts["edges"], facts["class_sizes"]) == (0, 0, {"u": 2, "v": 1})


@pytest.mark.parametrize(
    "command", [["import", "edges.csv", "nodes.csv", "--out"], ["serve", "--port", "0"]]
)
def test_an_unwritable_place_is_one_sentence(call, tmp_path, command):
    (tmp_path / "nodes.csv").write_text("id,label,x\na,u,1\n")
    (tmp_path / "edges.csv").write_text("source,target\n")
    (tmp_path / "file").write_text("")
    _, said = call(*command, "file/below", expect=2)
    assert "cannot be written (Not a directory)" in said
