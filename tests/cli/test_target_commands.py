"""Several labels and numbers from tables to predictions, on the command line."""

import json

import pytest
from typer.testing import CliRunner

from evergraph.cli.app import app
from evergraph.online.folder.learner_folder import LearnerFolder

pytestmark = pytest.mark.usefixtures("narrow_heads")
TABLES = {
    "labels": "id,p,q,labels\na,1,0,x;y\nb,0.9,0.1,x;y\nc,0,1,;\nd,0.1,0.9,;\ne,1,0.05,\n",
    "numbers": "id,p,q,target\na,1,0,5\nb,0.9,0.1,5.5\nc,0,1,-3\nd,0.1,0.9,-2.5\ne,1,0.05,\n",
}


def called(*words: str) -> str:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


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
        assert header == "id,labels,probabilities"
        assert near.startswith("e,x;y,0.9")
        assert far == "c,;,"
    else:
        assert header == "id,target"
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
