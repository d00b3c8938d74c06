"""Deltas from tables, by hand."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.codecs import table_deltas
from evergraph.online.codecs.table_deltas import TableDeltas
from evergraph.online.codecs.tables import read_deltas
from evergraph.online.delta import Delta, EdgeColumns, is_empty
from evergraph.online.heads import AnalyticHead, FusedHead
from evergraph.online.learner import OnlineLearner

NODES = "id,label,f,time\na,x,1,5\nb,,2,5\nc,y,3,6\nd,x,4,7\ne,x,5,8\n"
# a-b and b-a can come with b, c-a and known-c with c, e-d with e; old-older at once.
EDGES = "source,target\ne,d\na,b\nc,a\nb,a\nold,older\nknown,c\n"


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    return tmp_path / "nodes.csv", tmp_path / "edges.csv"


def test_an_edge_comes_with_the_later_of_its_nodes(tables):
    deltas = read_deltas(*tables, batch=2)
    assert len(deltas) == 3
    first, second, third = deltas
    assert (first.nodes, second.nodes, third.nodes) == (("a", "b"), ("c", "d"), ("e",))
    assert first.edges == (("a", "b"), ("b", "a"), ("old", "older"))
    assert second.edges == (("c", "a"), ("known", "c"))
    assert third.edges == (("e", "d"),)
    assert (first.labels, second.labels) == (("x", None), ("y", "x"))
    assert second.features.tolist() == [[3.0], [4.0]]  # the time is no feature
    assert first.key is second.key is third.key is None


def test_one_number_to_predict_is_no_feature(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("id,f,target_age\na,1,5.5\nb,2,\n")
    (delta,) = read_deltas(path)
    assert (delta.features.tolist(), delta.labels) == ([[1], [2]], (5.5, None))
    path.write_text("id,f,target_age,target_size\na,1,5.5,2\n")
    with pytest.raises(DataError, match="has columns target_age, target_size: expected one number"):
        read_deltas(path)


def test_nodes_alone_packed_and_with_integers(tmp_path):
    (tmp_path / "nodes.csv.gz").write_bytes(gzip.compress(b"id,f,op\na,1,7\n"))
    (delta,) = read_deltas(tmp_path / "nodes.csv.gz")  # numbers called op are a feature
    assert (delta.nodes, delta.features.tolist()) == (("a",), [[1.0, 7.0]])
    path = tmp_path / "nodes.csv"
    path.write_text("id,f\n7,1\n8,2\n")
    (delta,) = read_deltas(path, integers=True)
    assert (delta.nodes, delta.labels, delta.edges) == ((7, 8), (None, None), ())
    path.write_text("id,f\n7,1\neight,2\n")
    said = r"nodes\.csv: row 2 has 'eight' in column 'id': expected an integer"
    with pytest.raises(DataError, match=said):
        read_deltas(path, integers=True)


def test_labels_alone_come_late_and_edges_alone_in_lots(tables, monkeypatch):
    tables[0].write_text("id,label\na,x\nb,NULL\nc,y\nd,x\n")
    first, second = read_deltas(tables[0], batch=2)
    assert (first.nodes, first.late, second.late) == ((), (("a", "x"), ("c", "y")), (("d", "x"),))
    monkeypatch.setattr(table_deltas, "EDGES", 4)
    first, second = read_deltas(None, tables[1])
    assert first.edges == (("e", "d"), ("a", "b"), ("c", "a"), ("b", "a"))
    assert second.edges == (("old", "older"), ("known", "c"))


@pytest.mark.parametrize("marks", ["column", "ids"])
def test_nodes_to_forget_are_not_taken_in(tables, marks):
    if marks == "column":
        gone = {"c": "true"}
        lines = NODES.splitlines()
        rows = [f"{line},{gone.get(line[0], 'false')}" for line in lines[1:]]
        tables[0].write_text("\n".join([f"{lines[0]},gone", *rows]) + "\n")
    first, second = read_deltas(*tables, forget="gone" if marks == "column" else ["c", "nobody"])
    assert first.nodes == ("a", "b", "d", "e")
    assert first.features.tolist() == [[1], [2], [4], [5]]  # the mark is no feature either
    assert first.edges == (("e", "d"), ("a", "b"), ("b", "a"), ("old", "older"))
    assert second.forgotten == (("c",) if marks == "column" else ("c", "nobody"))


def test_marks_may_be_numbers(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("id,f,gone\na,1,1\nb,2,0\nc,3,\n")
    assert read_deltas(path, forget="gone").whole.forgotten == ("a",)
    path.write_text("id,f,gone\na,1,0\nb,2,5\n")
    with pytest.raises(DataError, match=r"nodes\.csv: row 2 has 5 in column 'gone': expected 0 or"):
        read_deltas(path, forget="gone")
    path.write_text("id,f,gone\na,1,old\n")
    with pytest.raises(DataError, match="column 'gone' holds string: expected true and false"):
        read_deltas(path, forget="gone")
    with pytest.raises(DataError, match=r"nodes\.csv: has no column 'left' .* no such file either"):
        read_deltas(path, forget="left")


def test_unused_columns(tables, caplog):
    nodes, edges = tables
    edges.write_text("source,target,kind\na,b,2\n")
    nodes.write_text("id,label,time,f,g\na,None,soon,1,5000\nb,x,0.5,2,4\n")
    deltas = read_deltas(nodes, edges)
    assert [record.getMessage() for record in caplog.records] == [
        f"{nodes}: the learner started with unnamed features: columns are matched by "
        "position and not encoded",
        f"{nodes}: 1 label is missing, written as 'None': this is not a class name",
        f"{nodes}: column 'time' is ignored: a learner takes nodes in the order of their rows; "
        "rename it if it is a feature",
        f"{nodes}: feature column 'g' reaches 5000, 2,500 times what the median column reaches (2):"
        " it drowns the others, so standardise the features",
        f"{edges}: column 'kind' is ignored: only source, target, weight and relation of edges are "
        "used",
    ]
    assert deltas.ignored == ("time", "kind")


def test_a_column_says_what_is_done_with_each_row(tables):
    nodes, edges = tables
    nodes.write_text("id,label,f,op\na,x,1,\nb,y,2,update\nc,,,forget\nd,,4,add\ne,,5,update\n")
    edges.write_text(
        "source,target,weight,op\na,b,0.5,add\nb,d,,remove\na,d,2,\nc,a,3,add\nc,d,,remove\n"
    )
    deltas = read_deltas(nodes, edges, batch=2)
    assert len(deltas) == 3
    first, cut, gone = deltas
    assert (first.nodes, first.features.tolist(), first.labels) == (
        ("a", "d"),
        [[1.0], [4.0]],
        ("x", None),
    )
    assert (first.updated, first.updated_features.tolist()) == (("b", "e"), [[2.0], [5.0]])
    assert (first.late, first.edges) == ((("b", "y"),), (("a", "b"), ("a", "d")))
    assert first.weights == (0.5, 2.0)
    assert cut.removed_edges == (("b", "d"),)  # who is forgotten takes its edges along
    assert gone.forgotten == ("c",)


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        ("id,f\na,1\nb,nan\n", EDGES, r"nodes\.csv: row 2 has no value in column 'f'"),
        ("id,f\na,1\nb,2e12\n", EDGES, r"nodes\.csv: row 2 has 2000000000000\.0 .* at most 1e\+12"),
        ("id,f\na,1\na,2\n", EDGES, r"nodes\.csv: row 2 repeats id 'a' of row 1"),
        ("id,f,op\na,1,add\nb,2,drop\n", EDGES, r"row 2 has 'drop' in column 'op': expected add"),
        ("id,f,op\na,1,add\nb,,update\n", EDGES, r"nodes\.csv: row 2 has no value in column 'f'"),
        (NODES, "source,target,op\na,b,cut\n", r"edges\.csv: row 1 has 'cut' in column 'op': exp"),
        (NODES, "source,target,op\na,b,7\n", r"edges\.csv: column 'op' holds int64: expected add"),
        (NODES, "source,target,weight\na,b,\n", r"edges\.csv: row 1 has no value in column 'weig"),
        (NODES, "source,target,weight\na,b,x\n", r"row 1 has 'x' in column 'weight': expected"),
        (
            NODES,
            "source,target,op\na,b,add\na,c,add\nb,a,remove\n",
            r"edges\.csv: row 3 has 'remove' in column 'op' for the edge of row 1: expected one op",
        ),
    ],
)
def test_all_is_checked_before_anything_is_taken_in(tables, nodes, edges, said):
    tables[0].write_text(nodes)
    tables[1].write_text(edges)
    with pytest.raises(DataError, match=said):
        read_deltas(*tables)


def test_ids_of_two_kinds(tmp_path, tables):
    nodes = tmp_path / "n.parquet"
    pyarrow.parquet.write_table(pa.table({"id": [1, 2], "f": [1.0, np.pi]}), str(nodes))
    tables[1].write_text("source,target\n1,2\n")
    said = r"edges\.csv: column 'source' holds ids of type string, but those of .* are int64"
    with pytest.raises(DataError, match=said):
        read_deltas(nodes, tables[1])
    (delta,) = read_deltas(nodes, tables[1], integers=True)
    assert delta.edges == ((1, 2),)


NODE = st.sampled_from("abcde")
DUMPS = st.fixed_dictionaries(
    {
        "nodes": st.dictionaries(NODE, st.tuples(st.integers(0, 3), st.sampled_from("xy"))),
        "edges": st.sets(st.tuples(NODE, NODE), max_size=8),
    }
)


def dumped(dump: dict[str, Any]) -> TableDeltas:
    """Return the deltas of a dump, which may list edges to nodes that it has not."""
    rows, edges = dump["nodes"], sorted(dump["edges"])
    sources, targets = (pa.array([edge[side] for edge in edges], pa.string()) for side in (0, 1))
    whole = Delta(
        nodes=[*rows],
        features=torch.tensor([[1.0, float(f)] for f, _ in rows.values()]).reshape(-1, 2),
        labels=[label for _, label in rows.values()],
        edges=EdgeColumns(sources, targets),
    )
    places = {
        "nodes": (Path("nodes.csv"), np.arange(len(rows))),
        "edges": (Path("edges.csv"), np.arange(len(edges))),
    }
    return TableDeltas(whole, batch=3, places=places)


def take_in(learner: OnlineLearner, deltas: TableDeltas) -> None:
    deltas, _ = deltas.without_unknown_edges(learner.knows_nodes)
    deltas.check_known(learner.knows_nodes)
    for delta in deltas:
        new, _ = learner.only_new(delta)
        if not is_empty(new):
            learner.apply(new)


def told(learner: OnlineLearner) -> tuple[Any, ...]:
    """Return nodes with features and labels, and edges, of a learner."""
    ids = learner.every_id()
    pairs, _ = learner.edges_beyond((pa.array([], pa.string()),) * 2, ())
    edges = {tuple(sorted(pair)) if learner.undirected else pair for pair in pairs}
    if not ids:
        return {}, edges
    known, places = learner.knowledge, learner._ids.positions(ids)
    labels = [known.classes.at(n) for n in known.labels.of(places).tolist()]
    rows = known.graph.features[places].tolist()
    return {node: (row, label) for node, row, label in zip(ids, rows, labels, strict=True)}, edges


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("undirected", [True, False])
@given(first=DUMPS, second=DUMPS)
def test_a_synced_learner_is_one_that_was_made_of_the_dump(first, second, undirected):
    given = {"topology": "identity", "patience": 9, "undirected": undirected}
    one, fresh = (OnlineLearner(head=AnalyticHead(width=8), **given) for _ in range(2))
    take_in(one, dumped(first))
    take_in(fresh, dumped(second))
    for _ in range(2):  # the second changes nothing
        sync = dumped(second).without_others(one.every_id(), emptying=True)
        take_in(one, sync.without_other_edges(one.edges_beyond, emptying=True))
        assert told(one) == told(fresh)


def test_a_sync_says_which_edges_go():
    """A path a - b - c; the dump has b - a and a self-loop."""
    learner = OnlineLearner(head=AnalyticHead(width=8))
    learner.apply(Delta(nodes="abc", features=torch.eye(3), edges=(("a", "b"), ("b", "c"))))
    dump = tuple(pa.array(side) for side in (["b", "c"], ["a", "c"]))
    edges, known = learner.edges_beyond(dump, ())
    assert [{*pair} for pair in edges] == [{"b", "c"}]
    assert known == 2
    assert learner.edges_beyond(dump, ("c",))[1] == 1  # it goes with its node
    learner = OnlineLearner(head=FusedHead(width=8, codes=4))
    edges = {"edges": (("a", "b"), ("b", "a")), "relations": ("cites", "likes")}
    learner.apply(Delta(nodes="ab", features=torch.eye(2), types=(None, None), **edges))
    with pytest.raises(ConfigurationError, match="--sync must not be given with --edges if"):
        learner.edges_beyond((pa.array(["a"]), pa.array(["b"])), ())
