"""Commands on a learner's folder: from a table to predictions; compact, backup, restore, check."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from evergraph.cli.app import app
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.delta import Delta
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.learner_folder import LearnerFolder


def called(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def begun(path: Path) -> Path:
    given = {"head": {"name": "analytic", "width": 16}}
    with LearnerFolder.open(path, given) as folder:
        folder.submit(Delta(nodes="ab", features=torch.eye(2), labels="xy", edges=(("a", "b"),)))
        folder.submit(Delta(nodes=("secret",), features=torch.ones(1, 2), key="secret-key"))
        folder.compact()
        folder.submit(Delta(nodes="c", features=torch.ones(1, 2), edges=(("b", "c"),), key="k"))
        folder.submit(Delta(forgotten=("secret",)))
    return path


def test_compact_takes_a_snapshot_and_with_now_leaves_nothing_else(tmp_path):
    folder = begun(tmp_path / "learner")
    assert called("compact", folder).startswith("snapshot 4: ")
    assert sorted(path.name for path in folder.glob("snapshot-*")) == ["snapshot-2", "snapshot-4"]
    done = json.loads(called("compact", folder, "--now", "--keys", "--json"))
    assert done["seq"] == 4
    assert done["places"] == 1
    assert [path.name for path in folder.glob("snapshot-*")] == ["snapshot-4"]
    for path in folder.rglob("*"):
        assert path.is_dir() or b"secret" not in path.read_bytes()


def test_compact_makes_no_folder_and_refuses_what_it_would_not_do(tmp_path):
    with pytest.raises(DataError, match="holds no learner"):
        called("compact", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigurationError, match="--keys needs --now"):
        called("compact", begun(tmp_path / "learner"), "--keys")


def test_a_backup_is_restored_elsewhere(tmp_path):
    folder = begun(tmp_path / "learner")
    (tmp_path / "ids.txt").write_text("a\nc\n")
    for name in ("copy", "copy.tar"):
        told = json.loads(called("backup", folder, tmp_path / name, "--json"))
        assert (told["seq"], told["snapshot"]) == (4, 2)
        made = tmp_path / f"made of {name}"
        assert called("restore", tmp_path / name, made).startswith(f"{made}: as of delta 4, ")
        predicted = [called("predict", each, tmp_path / "ids.txt") for each in (folder, made)]
        assert predicted[0] == predicted[1]
    with pytest.raises(ConfigurationError, match="is for a service"):
        called("backup", folder, tmp_path / "other", "--token-file", tmp_path / "ids.txt")


def test_check_tells_what_it_finds(tmp_path):
    folder = begun(tmp_path / "learner")
    assert called("check", folder) == f"{folder}: no findings\n"
    assert json.loads(called("check", folder, "--quick", "--json")) == {
        "sound": True,
        "findings": [],
        "set_aside": [],
    }
    (folder / "notes.txt").write_text("")
    said = "does not belong to a learner's folder"
    assert called("check", folder, code=1) == f"notes.txt: {said}\n"
    told = json.loads(called("check", folder, "--json", code=1))
    found = [{"file": "notes.txt", "what": said}]
    assert told == {"sound": False, "findings": found, "set_aside": []}
    with pytest.raises(DataError, match="holds no learner"):
        called("check", tmp_path)


def test_check_leaves_a_delta_out_that_keeps_a_folder_from_opening(tmp_path):
    path = tmp_path / "learner"
    with LearnerFolder.open(path, {"head": {"name": "analytic", "width": 8}}) as folder:
        for number, name in enumerate("abc"):
            delta = Delta(nodes=(name,), features=torch.eye(3)[[number]], labels=("x",), key=name)
            folder.submit(delta)
    journal = Journal(path / JOURNAL_FILE)
    journal.connection.execute("UPDATE deltas SET bytes = x'00' WHERE seq = 2")
    journal.close()
    with pytest.raises(DataError, match="delta 2 cannot be read"):
        LearnerFolder.open(path)
    assert "delta 2 cannot be read" in called("check", path, code=1)
    assert "a bad sector" in called("check", path, "--skip", 2, "--why", "a bad sector")
    (kept,) = json.loads(called("check", path, "--json"))["set_aside"]
    assert (kept["seq"], kept["key"], kept["why"], kept["size"]) == (2, "b", "a bad sector", 1)
    said = called("check", path)
    assert said.startswith(f"{path}: no findings\n")
    assert "a bad sector" in said
    with LearnerFolder.open(path) as folder:
        assert (folder.seq, folder.learner.every_id()) == (3, ["a", "c"])


def test_leaving_out_needs_a_number_and_a_reason(tmp_path):
    with pytest.raises(ConfigurationError, match="--skip needs --why"):
        called("check", tmp_path, "--skip", 2)
    with pytest.raises(ConfigurationError, match="needs --skip"):
        called("check", tmp_path, "--why", "no")


pytestmark = pytest.mark.usefixtures("narrow_heads")
TABLES = {
    "labels": "id,p,q,labels\na,1,0,x;y\nb,0.9,0.1,x;y\nc,0,1,;\nd,0.1,0.9,;\ne,1,0.05,\n",
    "numbers": "id,p,q,target\na,1,0,5\nb,0.9,0.1,5.5\nc,0,1,-3\nd,0.1,0.9,-2.5\ne,1,0.05,\n",
}


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_from_a_table_to_predictions_in_two_commands(kind, tmp_path):
    (tmp_path / "nodes.csv").write_text(TABLES[kind])
    (tmp_path / "ids.txt").write_text("e\nc\n")
    learner, nodes = str(tmp_path / "learner"), str(tmp_path / "nodes.csv")
    done = json.loads(called("ingest", learner, "--nodes", nodes, "--batch", "2", "--json"))
    assert (done["new_nodes"], done["new_labels"]) == (5, 4)
    assert done["metric"] == {"labels": "micro F1", "numbers": "mean absolute error"}[kind]
    again = json.loads(called("ingest", learner, "--nodes", nodes, "--json"))
    assert (again["new_labels"], again["changed_labels"]) == (0, 0)
    header, near, far = called("predict", learner, str(tmp_path / "ids.txt")).splitlines()
    if kind == "labels":
        assert header == "id,labels,probabilities,known"
        assert near.startswith("e,x;y,0.9")
        assert far.startswith("c,;,")
    else:
        assert header == "id,target,known"
        assert float(near.split(",")[1]) == pytest.approx(5, abs=1)
        assert float(far.split(",")[1]) == pytest.approx(-3, abs=1)


def test_info_tells_of_targets(tmp_path):
    (tmp_path / "nodes.csv").write_text(TABLES["labels"])
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    facts = json.loads(called("info", str(tmp_path), "--json"))
    assert (facts["targets"], facts["unknown_nodes"]) == ("labels", 1)
    assert facts["class_sizes"] == {"x": 2, "y": 2}


def test_a_folder_in_use_is_explained_in_words_of_the_command_line(call):
    with LearnerFolder.open("learner"):
        for command, advice in (
            (("serve", "learner", "--port", "0"), "stop it, or give --read-only"),
            (("compact", "learner"), "stop it, or if it is a service, give its URL"),
        ):
            _, err = call(*command, expect=2)
            assert advice in " ".join(err.split())
            assert "readonly" not in err
