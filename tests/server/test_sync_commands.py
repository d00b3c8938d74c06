"""Dumps that are given again, synced, and what else changes a learner by ``evergraph ingest``."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from command_tables import EDGES, NODES, TABLES, summary
from evergraph.online.folder.learner_folder import LearnerFolder

pytestmark = pytest.mark.usefixtures("narrow_heads", "two_tables")
Call = Callable[..., tuple[str, str]]


# A day later: n4 and n9 have labels, n0 has another, n24 has another feature, n25 is new, and so
# are its edges and one between nodes that were there. The rest is the dump of the day before.
LATER_NODES = (
    NODES.replace("n4,,", "n4,x,")
    .replace("n9,,", "n9,NULL,")
    .replace("n0,x,", "n0,y,")
    .replace("n24,,0,1", "n24,,0,3")
    + "n25,z,1,1\n"
)


LATER_EDGES = EDGES + "n25,n0\nn25,n3\nn1,n2\n"


@pytest.mark.usefixtures("filled")
def test_a_dump_that_has_grown_is_given_again(call, tmp_path):
    """That it is learned as if it had come at once is a property in ``tests/online``."""
    (tmp_path / "nodes.csv").write_text(LATER_NODES)
    (tmp_path / "edges.csv").write_text(LATER_EDGES)
    out, err = call("ingest", "learner", *TABLES[:4], "--batch", "8")
    assert summary(out).startswith(
        "1 new node, 25 known nodes skipped, 3 new edges, 2 labels added, 1 changed, 0 nodes "
        "forgotten; the learner knows 26 nodes and 3 classes"
    )
    assert err.splitlines() == [
        "nodes.csv: 1 label is missing, written as 'NULL': this is not a class name",
        "nodes.csv: the features of 1 known node were kept: to change them, put 'update' in "
        "a column 'op'",
    ]


@pytest.mark.usefixtures("filled")
def test_edges_labels_and_nodes_to_forget_come_alone(call, tmp_path):
    (tmp_path / "e.csv").write_text("source,target,weight\nn1,n0,2\nn0,n2,3\n")
    out, err = call("ingest", "learner", "--edges", "e.csv")
    assert summary(out).startswith("0 new nodes, 0 known nodes skipped, 1 new edge, 0 labels added")
    assert "1 weight changed, 0 nodes forgotten; the learner knows 25 nodes and 2 classes" in out
    assert err == ""
    (tmp_path / "l.csv").write_text("id,label\nn0,x\nn4,x\nn9,z\nn1,x\nn14,\n")
    assert "2 labels added, 1 changed" in call("ingest", "learner", "--nodes", "l.csv")[0]
    (tmp_path / "gone").write_text("n0\nnobody\n")
    out, _ = call("ingest", "learner", "--forget", "gone")
    assert "1 node forgotten; the learner knows 24 nodes" in out
    out, _ = call("ingest", "learner", *TABLES, "--forget", "gone")  # the dump still has it
    assert summary(out).startswith("0 new nodes, 24 known nodes skipped, 0 new edges")


def test_tables_say_what_changes(call, tmp_path, filled_service):
    target, extra = filled_service
    (tmp_path / "n.csv").write_text(
        "id,label,f,g,op\nn0,,9,9,update\nn1,,,,forget\nx,,1,1,update\n"
    )
    (tmp_path / "e.csv").write_text("source,target,op\nn2,n4,remove\nn2,n9,remove\nn0,n9,add\n")
    tables = ("--nodes", "n.csv", "--edges", "e.csv", *extra)
    out, err = call("ingest", target, *tables)
    assert summary(out).startswith(
        "0 new nodes, 0 known nodes skipped, 1 new edge, 0 labels added, 0 changed, 1 edge "
        "removed, 1 node updated, 1 node forgotten; the learner knows 24 nodes"
    )
    assert err.splitlines()[-2:] == [  # after gaps of the row that is to be forgotten
        "e.csv: 1 edge to remove not found in the learner",
        "n.csv: 1 node to update not found in the learner",
    ]
    out, _ = call("ingest", target, *tables)  # again: nothing of it is new
    assert summary(out).startswith(
        "0 new nodes, 0 known nodes skipped, 0 new edges, 0 labels added, 0 ch"
    )
    assert "removed" not in out
    assert "updated" not in out


@pytest.mark.usefixtures("filled")
def test_a_node_that_nobody_knows_is_found_before_anything_is_taken_in(call, tmp_path):
    (tmp_path / "ids").write_text("n99\n")
    (tmp_path / "more.csv").write_text(NODES + "n99,x,1,1\n")
    (tmp_path / "edges.csv").write_text(EDGES + "n1,nobody\n")
    (tmp_path / "late.csv").write_text("id,label\nn0,x\nnobody,y\n")
    for words, said in (
        (("more.csv", "--edges", "edges.csv"), "edges.csv: row 24 has 'nobody' in column 'target'"),
        (("late.csv",), "late.csv: row 2 has 'nobody' in column 'id'"),
    ):
        _, err = call("ingest", "learner", "--nodes", *words, expect=2)
        assert err.startswith(f"error: {said}")
        assert "node 'n99' is not in the graph" in call("predict", "learner", "ids", expect=2)[1]


DUMP = (
    "id,label,f,g\n" + "".join(f"n{i},{'xy'[i % 2]},{i % 2},{i}\n" for i in range(3, 28)),
    "source,target\n" + "".join(f"n{i},n{i - 2 - i % 2}\n" for i in range(6, 28)),
)


def lay_dump(tmp_path: Path) -> tuple[str, ...]:
    for name, text in zip(("n2.csv", "e2.csv"), DUMP, strict=True):
        (tmp_path / name).write_text(text)
    return ("--nodes", "n2.csv", "--edges", "e2.csv")


@pytest.mark.usefixtures("filled")
def test_a_sync_that_was_stopped_goes_on(call, tmp_path, monkeypatch):
    dump = lay_dump(tmp_path)
    upsert, calls = LearnerFolder.upsert, []

    def stopped(self, delta):
        calls.append(delta)
        if len(calls) % 2 == 0:
            raise KeyboardInterrupt
        return upsert(self, delta)

    monkeypatch.setattr(LearnerFolder, "upsert", stopped)
    for _ in range(2):
        _, err = call("ingest", "learner", *dump, "--batch", "20", "--sync", expect=130)
        assert "run the same command again" in err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    done = json.loads(call("ingest", "learner", *dump, "--sync", "--json")[0])
    call("ingest", "fresh", *dump)  # it leaves what the dump has and nothing else
    with LearnerFolder.open("learner") as one, LearnerFolder.open("fresh") as other:
        assert set(one.learner.every_id()) == set(other.learner.every_id())
        assert one.learner.status().edges == other.learner.status().edges == done["edges"]
    out, err = call("ingest", "learner", *dump, "--sync")
    assert "0 new nodes, 25 known nodes skipped, 0 new edges, 0 labels added" in out
    assert "removed" not in out
    assert not err


@pytest.mark.usefixtures("filled")
def test_a_sync_that_would_leave_nothing_is_refused_unless_told(call, tmp_path):
    (tmp_path / "n.csv").write_text("id,label,f,g\n")
    (tmp_path / "e.csv").write_text("source,target\n")
    for given, said, done in (
        (
            ("--edges", "e.csv", "--nodes", "nodes.csv"),
            "none of the 23 known edges",
            "removed_edges",
        ),
        (("--nodes", "n.csv"), "none of the 25 known nodes, so all of them would", "forgotten"),
    ):
        with LearnerFolder.open("learner") as folder:
            before = folder.learner.status()
        _, err = call("ingest", "learner", *given, "--sync", expect=2)
        assert f"has {said}" in err
        assert "--allow-emptying" in err
        with LearnerFolder.open("learner") as folder:
            assert folder.learner.status() == before
        told = call("ingest", "learner", *given, "--sync", "--allow-emptying", "--json")[0]
        assert json.loads(told)[done] == (25 if done == "forgotten" else 23)


@pytest.mark.usefixtures("filled")
def test_an_edge_of_a_dump_to_a_node_that_goes_is_one_to_an_unknown_node(call, tmp_path):
    (tmp_path / "fewer.csv").write_text("\n".join(NODES.splitlines()[:-1]))  # n24 is gone
    given = ("ingest", "learner", "--nodes", "fewer.csv", "--edges", "edges.csv", "--sync")
    _, err = call(*given, expect=2)
    assert "row 23 has 'n24' in column 'source'" in err
    for _ in range(2):
        out, _ = call(*given, "--unknown-edges", "skip")
        assert "1 edge to unknown nodes skipped" in out


def test_a_service_is_synced_in_its_nodes(call, tmp_path, filled_service):
    url, extra = filled_service
    dump = lay_dump(tmp_path)
    _, err = call("ingest", url, *dump, "--sync", *extra, expect=2)
    assert "--sync compares edges in a folder only" in err
    done = json.loads(call("ingest", url, *dump[:2], "--sync", *extra, "--json")[0])
    assert (done["forgotten"], done["new_nodes"], done["nodes"]) == (3, 3, 25)


def test_edges_to_unknown_nodes_are_skipped_and_counted_on_request(call, tmp_path, filled_service):
    target, extra = filled_service
    (tmp_path / "e.csv").write_text(EDGES + "n1,nobody\nnobody,n2\nn0,n1\nnowhere,nobody\n")
    given = ("ingest", target, "--nodes", "nodes.csv", "--edges", "e.csv", *extra)
    assert "nobody" in call(*given, expect=2)[1]
    out, _ = call(*given, "--unknown-edges", "skip")
    assert "1 new edge" in out
    assert "3 edges to unknown nodes skipped" in out
    _, err = call(*given, "--unknown-edges", "drop", expect=2)
    assert "unknown --unknown-edges 'drop'" in err
