"""evergraph info, status, evaluate and report of a learner's folder."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_tables import EDGES, NODES, TABLES
from evergraph.cli.app import app
from evergraph.cli.learner_target import FORMAT_FILE
from evergraph.online.folder import markers

# Two nodes that the tables leave unlabelled, and two new ones, of which one is of a new class.
HELD_OUT = "id,label,f,g\nn4,x,0,1\nn9,y,1,0\nnew1,y,1,0\nnew2,z,0,1\n"
HELD_EDGES = "source,target\nnew1,n1\nnew2,n0\n"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, narrow_heads) -> Path:
    """A place with two tables, a learner that was given them, and nodes that are held out."""
    place = tmp_path_factory.mktemp("filled")
    (place / "nodes.csv").write_text(NODES)
    (place / "edges.csv").write_text(EDGES)
    (place / "held.csv").write_text(HELD_OUT)
    (place / "held_edges.csv").write_text(HELD_EDGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert CliRunner().invoke(app, ["ingest", "learner", *TABLES]).exit_code == 0
        assert CliRunner().invoke(app, ["compact", "learner"]).exit_code == 0
    return place


@pytest.fixture
def learner(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return tmp_path / "learner"


def digest(folder: Path) -> str:
    """Return a hash of all files but those of SQLite's shared memory."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "-" not in path.suffix)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def test_a_folder_is_told_from_a_graph_by_the_file_of_its_format():
    assert markers.FORMAT_FILE == FORMAT_FILE


def test_info_and_status_tell_what_a_learner_is_and_how_it_does(call, learner):
    told = json.loads(call("info", "learner", "--json")[0])
    assert (told["targets"], told["nodes"], told["labelled"]) == ("class", 25, 20)
    assert told["class_sizes"] == {"x": 10, "y": 10}
    assert [column["column"] for column in told["columns"]] == ["f", "g"]
    out, _ = call("info", "learner")
    assert "23, undirected" in out
    assert "share of the latest" in out
    told = json.loads(call("status", "learner", "--json")[0])
    assert (told["seq"], told["alarms"], told["stopped"]) == (3, [], None)
    out, _ = call("status", "learner")
    assert "accuracy before labels came" in out
    assert "newest snapshot" in out
    assert "holds no learner" in call("status", "nothing", expect=2)[1]


def test_held_out_nodes_are_scored_and_nothing_is_written(call, learner):
    before = digest(learner)
    tables = ("--nodes", "held.csv", "--edges", "held_edges.csv")
    told = json.loads(call("evaluate", "learner", *tables, "--json")[0])
    assert (told["nodes"], told["new"], told["learned"]) == (4, 2, 0)
    assert told["measures"]["accuracy"] == pytest.approx(3 / 4)  # z cannot be predicted
    assert told["measures"]["balanced accuracy"] == pytest.approx(2 / 3)
    scores = {each["name"]: (each["nodes"], each["right"]) for each in told["classes"]}
    assert scores == {"x": (1, 1), "y": (2, 2), "z": (1, 0)}
    out, err = call("evaluate", "learner", *tables)
    assert "balanced accuracy" in out
    assert "true class" in out
    assert "note" not in err
    assert digest(learner) == before
    # Columns may have other names.
    Path("named.csv").write_text(HELD_OUT.replace("id,label", "who,kind"))
    named = ("--nodes", "named.csv", "--id", "who", "--label", "kind", *tables[2:])
    assert json.loads(call("evaluate", "learner", *named, "--json")[0]) == told
    # As after adding the nodes without their labels.
    Path("unlabelled.csv").write_text("id,f,g\nnew1,1,0\nnew2,0,1\n")
    shutil.copytree(learner, "added")
    call("ingest", "added", "--nodes", "unlabelled.csv", "--edges", "held_edges.csv")
    added = json.loads(call("evaluate", "added", *tables, "--json")[0])
    assert added == told | {"new": 0}


def test_labels_that_were_learned_are_no_test(call, learner):
    _, err = call("evaluate", "learner", "--nodes", "nodes.csv")
    assert "has learned the labels of 20 of these nodes" in err


def test_what_cannot_be_evaluated_is_refused_in_a_sentence(call, learner):
    Path("few.csv").write_text("id,f,g\nn1,1,0\n")
    Path("numbers.csv").write_text("id,target,f,g\nn1,1.5,1,0\n")
    for table, reason in (
        ("few.csv", "has no labels"),
        ("numbers.csv", "must be text or an integer, not 1.5"),
    ):
        assert reason in call("evaluate", "learner", "--nodes", table, expect=2)[1]
    assert "holds no learner" in call("evaluate", "nothing", "--nodes", "few.csv", expect=2)[1]
    words = ("evaluate", "learner", "--nodes", "held.csv", "--out", "page.pdf")
    assert "must end in .html" in call(*words, expect=2)[1]
    assert "--out is for a learner's folder" in call("report", "--out", "a.html", expect=2)[1]


@pytest.mark.parametrize(
    ("column", "values", "measure"),
    [("labels", ("x;y", "y"), "micro F1"), ("target", ("1.5", "2.5"), "mean absolute error")],
)
def test_labels_and_numbers_have_measures_of_their_own(
    call, narrow_heads, undrawn, column, values, measure
):
    rows = (f"m{i},{values[i % 2]},{i % 2},{1 - i % 2}\n" for i in range(12))
    Path("nodes.csv").write_text(f"id,{column},f,g\n{''.join(rows)}")
    Path("held.csv").write_text(f"id,{column},f,g\nnew,{values[1]},1,0\n")
    call("ingest", "learner", "--nodes", "nodes.csv", "--batch", "4")
    out, _ = call("evaluate", "learner", "--nodes", "held.csv", "--out", "page.html")
    assert measure in out
    assert measure in Path("page.html").read_text()
    call("report", "learner")
    assert f"{measure} before labels came" in Path("learner-report.html").read_text()


def test_a_learner_is_drawn_on_one_page(call, learner, undrawn):
    out, _ = call("report", "learner")
    assert out.endswith("learner-report.html\n")
    page = Path("learner-report.html").read_text()
    for heading in ("At a glance", "Predictions before their labels came", "Classes", "Confusion"):
        assert f">{heading}" in page
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert call("report", "learner", "--out", "other.html")[0].endswith("report: other.html\n")
    call(
        "evaluate", "learner", "--nodes", "held.csv", "--edges", "held_edges.csv", "--out", "e.html"
    )
    page = Path("e.html").read_text()
    assert all(f">{name}</h2>" in page for name in ("Scores", "Class by class", "Calibration"))
