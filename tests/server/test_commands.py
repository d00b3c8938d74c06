"""``evergraph ingest``, ``predict`` and ``serve`` as a user meets them."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from command_tables import EDGES, NODES, TABLES, predicted
from evergraph.core.errors import DataError
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.client import Client

pytestmark = pytest.mark.usefixtures("narrow_heads", "two_tables")
Call = Callable[..., tuple[str, str]]


def test_a_folder_is_filled_once_and_asked(call, tmp_path):
    (tmp_path / "ids.csv").write_text("time,id\n1,n4\n2,n9\n")
    before = {*tmp_path.iterdir(), tmp_path / "learner"}
    done = json.loads(call("ingest", "learner", *TABLES, "--json")[0])
    assert (done["nodes"], done["deltas"], done["classes"]) == (25, 3, 2)
    assert (done["new_nodes"], done["new_edges"], done["new_labels"]) == (25, 23, 20)
    assert done["edges"] == 23  # each counts once, as in a status
    assert done["predicted"] == done["right"] == 12  # labelled ones of the second and third ten
    assert set(tmp_path.iterdir()) == before
    again = json.loads(call("ingest", "learner", *TABLES[:4], "--batch", "7", "--json")[0])
    assert (again["known_nodes"], again["known_edges"]) == (25, 23)
    assert not any(again[name] for name in ("new_nodes", "new_edges", "new_labels"))
    assert (again["nodes"], again["classes"]) == (25, 2)
    assert predicted(call("predict", "learner", "ids.csv")[0]) == {"n4": "x", "n9": "y"}
    call("predict", "learner", "ids.csv", "--out", "told.csv")
    assert predicted(Path("told.csv").read_text()) == {"n4": "x", "n9": "y"}


def test_a_service_is_filled_and_asked(call, service, monkeypatch, tmp_path):
    url, tokens = service
    with_token = ("--token-file", str(tokens))
    _, err = call("ingest", url, *TABLES, expect=2)
    assert err.startswith(f"error: {url}: a token is needed")
    for new in (25, 0):
        done = json.loads(call("ingest", url, *TABLES, *with_token, "--json")[0])
        assert (done["new_nodes"], done["known_nodes"]) == (new, 25 - new)
        assert (done["deltas"], done["nodes"]) == (3, 25)
    assert Client(url, token="r" * 20).status()["seq"] == 3
    (tmp_path / "ids").write_text("n4\nn9\n\n")
    assert predicted(call("predict", url, "ids", *with_token)[0]) == {"n4": "x", "n9": "y"}
    (tmp_path / "ids").write_text("n4\nnobody\n")
    out, err = call("predict", url, "ids", *with_token, expect=2)
    assert (out, err) == ("", f"error: {url}: node 'nobody' is not in the graph\n")


def test_integer_ids(call, tmp_path):
    (tmp_path / "n.csv").write_text("id,label,f\n1,a,0\n2,b,1\n")
    call("ingest", "learner", "--nodes", "n.csv", "--integers")
    (tmp_path / "ids").write_text("2\n")
    assert predicted(call("predict", "learner", "ids", "--integers")[0]) == {"2": "b"}
    assert "node '2' is not in the graph" in call("predict", "learner", "ids", expect=2)[1]
    (tmp_path / "ids").write_text("two\n")
    assert "not 'two'" in call("predict", "learner", "ids", "--integers", expect=2)[1]
    assert call("explain", "learner", "2")[0].startswith("2: b with")  # found by its digits
    with LearnerFolder.open(tmp_path / "learner") as folder:
        folder.submit(Delta(nodes=("2",), features=torch.ones(1, 1), labels=("a",)))
    assert "labelled a" in call("explain", "learner", "2")[0]
    assert "labelled b" in call("explain", "learner", "2", "--integer")[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "l", "--host", "0.0.0.0"), "unless there is a --token-file"),
        (
            ("serve", "l", "--token-file", "nodes.csv"),
            "the token file must be readable by its owner only",
        ),
        (("serve", "l", "--set", "head.wide=3"), "has no parameter 'wide'"),
        (("serve", "l", "--proxy", "here"), "proxy must be an address such as 192.0.2.7 or a net"),
        (("serve", "l", "--read-only", "--hops", "3"), "leave out topology"),
        (("serve", "l", "--read-only", "--port", "0"), "l holds no learner yet"),
        (("ingest", "l", "--nodes", "nothing.csv"), "nothing.csv: "),
        (("ingest", "l", "--nodes", "nodes.csv", "--batch", "0"), "batch must be an integer"),
        (("ingest", "l"), "needs --nodes, --edges, --forget or a stream -"),
        (("ingest", "l", "--edges", "edges.csv", "--forget", "left"), "left: no such file"),
        (("predict", "l", "nodes.csv", "--out", "a.txt"), "--out must end in .csv or .parquet, "),
        (("ingest", "l", "--nodes", "nodes.csv", "--token-file", "t"), "l is a folder"),
        (("ingest", "http://127.0.0.1:9", "--nodes", "nodes.csv"), "no service answers"),
        (("predict", "nowhere", "nodes.csv"), "nowhere holds no learner"),
        (("predict", "nowhere", "nothing"), "nothing: no such file"),
    ],
)
def test_what_is_wrong_is_one_sentence(call, arguments, said):
    Path("nodes.csv").chmod(0o644)
    out, err = call(*arguments, expect=2)
    assert said in err
    assert (out, err.count("error: ")) == ("", 1)


def test_how_long_keys_are_kept_reaches_the_folder(call, monkeypatch):
    given = {}

    def opened(*_, **options):
        given.update(options)
        raise DataError("this is enough")

    monkeypatch.setattr(LearnerFolder, "open", opened)
    _, err = call("serve", "l", "--port", "0", "--key-age", "0.5", expect=2)
    assert err.endswith("error: this is enough\n")
    assert given["key_age"] == 0.5


def test_a_stream_into_a_service_and_all_predictions_out(call, service, monkeypatch):
    url, tokens = service
    lines = [{"node": f"n{i}", "features": [i % 2, 1], "label": "xy"[i % 2]} for i in range(7)]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"forget": "n3"}])
    monkeypatch.setattr("evergraph.server.client.MAX_IDS", 3)
    for known in (0, 8):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        out, _ = call("ingest", url, "-", "--batch", "3", "--token-file", str(tokens))
        assert out.startswith(f"8 lines, {known} known, in {0 if known else 3} deltas;")
    told, _ = call("predict", url, "--all", "--token-file", str(tokens))
    assert [*predicted(told)] == ["n0", "n1", "n2", "n4", "n5", "n6"]
    monkeypatch.setattr("sys.stdin", io.StringIO(text + '{"edge": ["n0", "n3"]}\n'))
    _, err = call("ingest", url, "-", "--token-file", str(tokens), expect=2)
    assert err.startswith(f"error: line 9: {url}: edge 0 joins 'n0' and 'n3', but node 'n3' is not")


@pytest.mark.usefixtures("filled")
def test_what_to_ask_next(call, tmp_path, service):
    told = json.loads(call("suggest", "learner", "-n", "2", "--json")[0])["suggestions"]
    with LearnerFolder.open(tmp_path / "learner", readonly=True) as folder:
        found = folder.learner.suggest(2)
    assert [row["id"] for row in told] == [one.id for one in found]
    assert {row["id"] for row in told} < {f"n{i}" for i in range(4, 25, 5)}  # none has a label
    shown = call("suggest", "learner", "-n", "2")[0]
    assert all(text in shown for text in (found[0].id, "uncertainty", f"{found[0].gain:.2f}"))
    call("suggest", "learner", "--out", "ask.csv")
    lines = (tmp_path / "ask.csv").read_text().splitlines()
    assert lines[0] == "id,gain,reach,uncertainty,first,second"
    assert len(lines) == 6
    assert lines[1].split(",")[::2] == [found[0].id, str(found[0].reach), found[0].classes[0]]
    url, tokens = service
    assert json.loads(call("suggest", url, "--token-file", str(tokens), "--json")[0]) == {
        "suggestions": []
    }
    assert "has a label" in call("suggest", url, "--token-file", str(tokens))[0]
    assert "must end in .csv" in call("suggest", "learner", "--out", "a.txt", expect=2)[1]


@pytest.mark.usefixtures("filled")
def test_why_a_node_is_classified_as_it_is(call, filled_service):
    url, extra = filled_service
    told = json.loads(call("explain", "learner", "n4", "-n", "3", "--json")[0])
    assert [told["id"], told["known"], len(told["voices"])] == ["n4", None, 3]
    sums = [sum(each["says"][c] for each in told["voices"]) for c in range(2)]
    sums = [a + b + c for a, b, c in zip(sums, told["others"], told["rest"], strict=True)]
    assert sums == pytest.approx(told["scores"], abs=1e-5)
    served = ("explain", url, "n4", "-n", "3", *extra)
    assert set(json.loads(call(*served, "--json")[0])) == set(told)
    for shown in (call("explain", "learner", "n4", "-n", "3")[0], call(*served)[0]):
        assert shown.startswith(f"n4: {told['classes'][0]} with a probability of")
    table = call("explain", "learner", "n4", "-n", "3")[0]
    (total,) = [line for line in table.splitlines() if line.startswith("│ sum")]
    assert [*total.replace("│", " ").split()] == ["sum", *(f"{x:.3f}" for x in told["scores"])]
    assert "node 'nobody' is not in the graph" in call("explain", "learner", "nobody", expect=2)[1]
    assert "none holds no learner" in call("explain", "none", "n4", expect=2)[1]


def test_a_database_gives_the_learner_that_files_give(call, tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "g.db") as db:
        db.execute("create table n (id text, label text, f real, g real)")
        rows = [line.split(",") for line in NODES.splitlines()[1:]]
        db.executemany("insert into n values (?, nullif(?, ''), ?, ?)", rows)
        db.execute("create table e (source text, target text)")
        db.executemany("insert into e values (?, ?)", [r.split(",") for r in EDGES.split()[1:]])
    db.close()
    asked = ("--from", "sqlite:g.db", "--nodes", "select * from n", "--edges", "select * from e")
    one = json.loads(call("ingest", "sql", *asked, "--json")[0])
    two = json.loads(call("ingest", "files", *TABLES[:4], "--json")[0])
    assert one == two
    told = [predicted(call("predict", place, "--all")[0]) for place in ("sql", "files")]
    assert told[0] == told[1]
    _, err = call("ingest", "sql", "--from", "sqlite:g.db", "--nodes", "select x from n", expect=2)
    assert "SQLite reports: no such column" in err


def test_a_csv_may_be_written_another_way(call, tmp_path):
    plain = [f"n{i},{'xy'[i % 2]},{i / 4},{'' if i % 7 == 6 else i / 2},z" for i in range(25)]
    for name, between, point in (("usual", ",", "."), ("other", ";", ",")):
        text = "\n".join(["id,label,f,g,kind", *plain]).replace(",", between).replace(".", point)
        (tmp_path / f"{name}.csv").write_text(text + "\n")
        (tmp_path / f"{name}-e.csv").write_text(EDGES.replace(",", between))
    _, err = call("ingest", "l", "--nodes", "other.csv", expect=2)
    assert "is it written with --delimiter ';'?" in err
    written = ("--delimiter", ";", "--decimal", ",")
    call("ingest", "one", "--nodes", "usual.csv", "--edges", "usual-e.csv")
    call("ingest", "two", "--nodes", "other.csv", "--edges", "other-e.csv", *written)
    with LearnerFolder.open("one") as one, LearnerFolder.open("two") as two:
        assert one.columns == two.columns
        assert [each.encoder.name for each in one.columns.columns] == ["number"] * 2 + ["category"]
        assert one.learner.knowledge.graph.features.equal(two.learner.knowledge.graph.features)
    graphs = []
    for name, options in (("usual", ()), ("other", written)):
        out, _ = call(
            "import", f"{name}-e.csv", f"{name}.csv", "--out", f"{name}-g", *options, "--json"
        )
        graphs.append(json.loads(out)["checksum"])
    assert graphs[0] == graphs[1]
    _, err = call("import", "other-e.csv", "other.csv", "--out", "other-g", expect=2)
    assert "is not a graph of these tables" in err
    _, err = call("ingest", "l", "--nodes", "n.parquet", *written, expect=2)
    assert "need a CSV table: none is given" in err


@pytest.mark.usefixtures("filled")
def test_all_probabilities_and_known_labels_stand_beside_the_predicted_label(call):
    import pyarrow.parquet as parquet

    rows = [*csv.DictReader(io.StringIO(call("predict", "learner", "--all", "--probabilities")[0]))]
    columns = ["id", "label", "probability", "probability_x", "probability_y", "known"]
    assert list(rows[0]) == columns
    for row in rows:
        number = int(row["id"][1:])
        assert row["known"] == ("" if number % 5 == 4 else "xy"[number % 2])
        both = float(row["probability_x"]), float(row["probability_y"])
        assert sum(both) == pytest.approx(1, abs=2e-6)
        assert (float(row["probability"]), row["label"]) == max(zip(both, "xy", strict=True))
    call("predict", "learner", "--all", "--probabilities", "--out", "told.parquet")
    told = parquet.read_table("told.parquet").to_pylist()
    assert list(told[0]) == list(rows[0])
    assert [row["known"] or "" for row in told] == [row["known"] for row in rows]
    assert {type(row["probability_x"]) for row in told} == {float}


@pytest.mark.usefixtures("filled")
def test_asking_about_new_nodes_adds_nothing_and_answers_as_if_they_were_there(
    call, filled_service
):
    Path("new.csv").write_text("id,label,f,g\nnew,x,1,0\nother,,0,1\n")
    Path("near.csv").write_text("source,target\nnew,n1\nnew,n3\nother,new\n")
    url, with_token = filled_service
    asked = ("--dry", "--nodes", "new.csv", "--edges", "near.csv", "--probabilities")
    before = call("predict", "learner", "--all")
    dry = call("predict", "learner", *asked)[0].splitlines()
    assert call("predict", url, *asked, *with_token)[0].splitlines() == dry
    assert dry[0] == "id,label,probability,probability_x,probability_y"
    assert [line.split(",")[:2] for line in dry[1:]] == [["new", "y"], ["other", "x"]]
    assert call("predict", "learner", "--all") == before
    Path("new.csv").write_text("id,f,g\nnew,1,0\nother,0,1\n")
    call("ingest", "learner", "--nodes", "new.csv", "--edges", "near.csv")
    Path("ids").write_text("new\nother\n")
    added = call("predict", "learner", "ids", "--probabilities")[0].splitlines()
    assert [line.removesuffix(",") for line in added[1:]] == dry[1:]
    _, err = call("predict", "learner", "--nodes", "new.csv", "ids", expect=2)
    assert "--dry, --nodes and --edges belong together" in err
    _, err = call("predict", "learner", *asked, expect=2)
    assert "node 'new' is in the graph already" in err
