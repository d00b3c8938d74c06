"""Other names of columns, encodings and pipes, by every way in that has them."""

import csv
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import evergraph as eg
from arrow_bytes import delta_from_arrow
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets import named_graph
from evergraph.datasets.importing.importing import import_graph
from evergraph.online.codecs.tables import read_deltas
from evergraph.server.http import RefusedError
from evergraph.tables.choices import Columns
from evergraph.tables.names import check_columns
from evergraph.tables.sources import CsvTable, Query

NAMES = {
    "id": "customer_id",
    "label": "segment",
    "source": "payer",
    "target": "payee",
    "weight": "amount",
}
OPTIONS = [part for ours, theirs in NAMES.items() for part in (f"--{ours}", theirs)]
NODES = pd.DataFrame(
    {
        "id": [7, 8, 9, 10],  # of another system
        "customer_id": ["ann", "bob", "cid", "dan"],
        "segment": ["gold", "blue", None, "gold"],
        "age": [40.0, 20.0, 30.0, 50.0],
    }
)
EDGES = pd.DataFrame(
    {"payer": ["ann", "cid"], "payee": ["bob", "ann"], "amount": [2.5, 4.0], "weight": [1, 1]}
)


def folder_of(kind: str) -> Callable[[Path], Any]:
    def read(root: Path) -> Any:
        for name, table in (("nodes", NODES), ("edges", EDGES)):
            path = root / f"{name}.{kind}"
            table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        return eg.load(root, undirected=False, **NAMES)

    return read


def imported(root: Path) -> Any:
    folder_of("csv")(root)
    import_graph(root / "edges.csv", root / "nodes.csv", root / "g", undirected=False, **NAMES)
    return eg.load(root / "g", undirected=False)


def queried(root: Path) -> Any:
    with sqlite3.connect(root / "graph.db") as database:
        NODES.to_sql("nodes", database, index=False)
        EDGES.to_sql("edges", database, index=False)
    database.close()
    source = f"sqlite:{root / 'graph.db'}"
    edges, nodes = (Query.of(source, f"select * from {name}") for name in ("edges", "nodes"))
    import_graph(edges, nodes, root / "g", undirected=False, **NAMES)
    return eg.load(root / "g", undirected=False)


def framed(convert: Callable[[pd.DataFrame], Any]) -> Callable[[Path], Any]:
    def read(root: Path) -> Any:
        return named_graph(convert(NODES), edges=convert(EDGES), **NAMES).graph

    return read


def polars(table: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").from_pandas(table)


WAYS = {
    "csv": folder_of("csv"),
    "parquet": folder_of("parquet"),
    "import": imported,
    "sql": queried,
    "pandas": framed(lambda table: table),
    "arrow": framed(pa.Table.from_pandas),
    "polars": framed(polars),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_has_the_columns_that_the_user_named(way, tmp_path):
    graph = WAYS[way](tmp_path)
    assert (graph.num_nodes, graph.num_edges) == (4, 2)
    assert graph.class_names == ("blue", "gold")
    assert graph.labels.tolist() == [1, 0, -1, 1]
    assert graph.columns.kinds == {"age": "number"}
    assert graph.weights.tolist() == [4, 2.5]  # rows by target: cid to ann, ann to bob


def test_attributes_of_networkx_have_the_names_that_the_user_gave():
    graph = nx.DiGraph()
    graph.add_node("ann", segment="gold")
    graph.add_node("bob", segment="blue")
    graph.add_edge("ann", "bob", amount=2.5)
    named = named_graph(graph, labels="segment", weight="amount")
    assert (named.classes, named.graph.weights.tolist()) == (("blue", "gold"), [2.5])


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    NODES.to_csv("nodes.csv", index=False)
    EDGES.to_csv("edges.csv", index=False)
    return tmp_path


def test_commands_take_the_names_as_options(people, call):
    given = ["--nodes", "nodes.csv", "--edges", "edges.csv", *OPTIONS]
    out, err = call("ingest", "learner", *given)
    assert "4 new nodes" in out
    assert "2 new edges" in out
    assert "age" in out  # how columns are read
    assert "nodes.csv: column 'id' is ignored: 'customer_id' was named in its place" in err
    assert "edges.csv: column 'weight' is ignored: 'amount' was named in its place" in err
    again, _ = call("ingest", "learner", *given)
    assert again.startswith("0 new nodes")  # the table of columns is printed once
    done = json.loads(call("ingest", "learner", *given, "--json")[0])
    assert (done["nodes"], done["edges"]) == (4, 2)
    call("import", "edges.csv", "nodes.csv", "--out", "graph", *OPTIONS)
    facts = json.loads(call("info", ".", *OPTIONS, "--json")[0])
    assert facts["class_sizes"] == {"blue": 1, "gold": 2}
    assert json.loads(call("info", "graph", "--json")[0])["class_sizes"] == facts["class_sizes"]


def test_a_question_takes_the_names_and_the_dialect_of_a_table(people, call):
    call("ingest", "learner", "--nodes", "nodes.csv", "--edges", "edges.csv", *OPTIONS)
    new = NODES.drop(columns="id").assign(customer_id=["eva", "fay", "gus", "jürgen"])
    new.to_csv("new.csv", index=False, sep=";", encoding="latin-1")
    asked = ("predict", "learner", "--dry", "--nodes", "new.csv", *OPTIONS)
    out, _ = call(*asked, "--delimiter", ";", "--encoding", "latin-1")
    assert [line.split(",")[0] for line in out.splitlines()] == [
        "id",
        "eva",
        "fay",
        "gus",
        "jürgen",
    ]
    _, err = call("predict", "learner", "--all", "--id", "customer_id", expect=2)
    assert "need --dry and --nodes" in err


def test_other_names_are_hinted_at_by_the_options_that_give_them(people, call):
    NODES.drop(columns="id").to_csv("nodes.csv", index=False)
    _, err = call("ingest", "learner", "--nodes", "nodes.csv", expect=2)
    assert "has no column 'id': it has customer_id, segment, age; is it --id customer_id?" in err
    EDGES.to_csv("edges.csv", index=False)
    _, err = call("ingest", "learner", "--edges", "edges.csv", expect=2)
    assert "are they --source payer --target payee?" in err
    with pytest.raises(DataError, match=r"no column 'custmer_id'.* did you mean 'customer_id'"):
        eg.load(people, id="custmer_id")
    with pytest.raises(ConfigurationError, match="no parameter 'labl': did you mean 'label'"):
        eg.load(people, id="customer_id", labl="segment")
    with pytest.raises(ConfigurationError, match="must be named once each"):
        read_deltas(people / "nodes.csv", id="age", label="age")


@pytest.mark.parametrize(
    ("columns", "needed", "hint"),
    [
        ({"a": [1, 2], "b": [3, 3]}, "id", "; is it id='a'?"),  # all its values differ
        ({"size": [1.5, 2.5]}, "id", ""),  # measured
        ({"who": ["x", "x"]}, "id", ""),
        (
            {"customer": [*range(8)], "age": [3] * 8, "kind": ["x", "y"] * 4},
            "id",
            "; are they id='customer', label='kind'?",
        ),
        ({"id": [1], "Class": ["x"]}, "label", "; is it label='Class'?"),
        ({"id": [*range(8)], "kind": ["x", "y"] * 4}, "label", "; is it label='kind'?"),
        ({"n": [1], "from_id": [1], "to_id": [2]}, "source", "source='from_id', target='to_id'?"),
        ({"source": [1], "whom": [2]}, "target", "; is it target='whom'?"),
        ({"id;label": [1]}, "id", "; is it written with --delimiter ';'?"),
    ],
)
def test_likely_columns_by_hand(columns, needed, hint):
    table = pa.table(columns)
    with pytest.raises(DataError) as error:
        check_columns(table.column_names, (needed,), lambda: table)
    assert str(error.value).endswith(hint or ", ".join(columns))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_read_where_it_is_named_and_hinted_at_where_not(encoding, people, call):
    text = "id,label,f\nJürgen,süß,1\nb,sauer,2\n"
    Path("nodes.csv").write_bytes(text.encode(encoding))
    _, err = call("ingest", "learner", "--nodes", "nodes.csv", expect=2)
    assert f"it is not utf-8: is it written with --encoding {encoding}?" in err
    call("ingest", "learner", "--nodes", "nodes.csv", "--encoding", encoding)
    out, _ = call("predict", "learner", "--all")
    assert [row["id"] for row in csv.DictReader(out.splitlines())] == ["Jürgen", "b"]
    with pytest.raises(ConfigurationError, match="encoding must be one that Python knows"):
        CsvTable(people / "nodes.csv", encoding="latin-0")


def test_tables_come_through_pipes(people, call, monkeypatch):
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_bytes(edges))
    edges = Path("edges.csv").read_bytes()
    writer.start()
    with Path("nodes.csv").open() as table:
        monkeypatch.setattr("sys.stdin", table)
        out, err = call("ingest", "learner", "--nodes", "-", "--edges", "pipe", *OPTIONS)
    writer.join()
    assert "4 new nodes" in out
    assert "2 new edges" in out
    assert "-: column 'id' is ignored" in err
    NODES.to_parquet("nodes.parquet")
    with Path("nodes.parquet").open() as table:
        monkeypatch.setattr("sys.stdin", table)
        out, _ = call("ingest", "learner", "-", "--format", "parquet", *OPTIONS)
    assert "4 known nodes skipped" in out
    _, err = call("ingest", "learner", "--nodes", "-", "--edges", "-", expect=2)
    assert "only one table can be read from standard input" in err


def test_the_package_is_a_command():
    done = subprocess.run([sys.executable, "-m", "evergraph", "--version"], capture_output=True)
    assert done.stdout.decode().strip() == eg.__version__


def test_a_classifier_takes_the_names_as_keywords():
    nodes = NODES.drop(columns="id")
    model = eg.ContinualNodeClassifier(width=16, targets="numbers")
    model.partial_fit(nodes, id="customer_id", label="age")
    assert model.status().labelled == 4
    with pytest.raises(DataError, match="is it id='customer_id'"):
        model.partial_fit(nodes)


def test_lines_have_no_column_of_ids_to_be_named(people, call):
    _, err = call("ingest", "learner", "-", "--label", "segment", "--id", "node", expect=2)
    assert "--id names a column of tables, not of lines" in err


def test_ids_and_classes_may_be_texts_and_integers_in_one_column():
    nodes = pd.DataFrame({"id": ["a", 7], "label": ["x", 3], "f": [1.0, 2.0]})
    model = eg.ContinualNodeClassifier(width=16).partial_fit(nodes)
    assert model.classes_.tolist() == ["x", 3]
    assert model.predict(["a", 7]).tolist() == ["x", 3]


def loaded(nodes: pd.DataFrame, edges: pd.DataFrame, root: Path) -> None:
    nodes.to_csv(root / "nodes.csv", index=False)
    edges.to_csv(root / "edges.csv", index=False)
    eg.load(root, **NAMES)


def imported_tables(nodes: pd.DataFrame, edges: pd.DataFrame, root: Path) -> None:
    nodes.to_parquet(root / "nodes.parquet")
    edges.to_parquet(root / "edges.parquet")
    import_graph(root / "edges.parquet", root / "nodes.parquet", root / "g", **NAMES)


def frames(nodes: pd.DataFrame, edges: pd.DataFrame, root: Path) -> None:
    named_graph(nodes, edges=edges, **NAMES)


def ingested(nodes: pd.DataFrame, edges: pd.DataFrame, root: Path) -> None:
    nodes.to_csv(root / "n.csv", index=False)
    edges.to_csv(root / "e.csv", index=False)
    read_deltas(root / "n.csv", root / "e.csv", columns=Columns(), **NAMES)


def sent_as_arrow(nodes: pd.DataFrame, edges: pd.DataFrame, root: Path) -> None:
    tables = [pa.Table.from_pandas(each, preserve_index=False) for each in (nodes, edges)]
    with pa.BufferOutputStream() as out:
        for table in tables:
            with pa.ipc.new_stream(out, table.schema) as writer:
                writer.write_table(table)
        body = out.getvalue().to_pybytes()
    try:
        delta_from_arrow(body, names=NAMES)
    except RefusedError as error:
        raise DataError(str(error)) from None


def fitted(nodes: pd.DataFrame, edges: pd.DataFrame, root: Path) -> None:
    eg.ContinualNodeClassifier().partial_fit(nodes, edges=edges, **NAMES)


BY_PLACE = [fitted]  # which takes columns out of its tables, and counts their values
READERS = [loaded, imported_tables, frames, ingested, sent_as_arrow, fitted]


@pytest.mark.parametrize("way", READERS)
@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        ("nodes", "customer_id", None),
        ("nodes", "customer_id", "bob"),
        ("edges", "payer", None),
        ("edges", "payee", None),
        ("edges", "amount", -1.0),
    ],
)
def test_an_error_calls_a_column_as_the_user_does(table, name, value, way, tmp_path):
    tables = {"nodes": NODES.drop(columns="id"), "edges": EDGES.drop(columns="weight")}
    if (value, way) == ("bob", sent_as_arrow):
        pytest.skip("ids are compared where the delta is checked, which knows no columns")
    changed = tables[table].copy()
    changed.loc[0, name] = value
    with pytest.raises(DataError) as raised:
        way(*(tables | {table: changed}).values(), tmp_path)
    said = str(raised.value)
    assert name in said or way in BY_PLACE
    ours = next(ours for ours, theirs in NAMES.items() if theirs == name)
    assert f"'{ours}'" not in said


@pytest.mark.parametrize("way", [loaded, imported_tables, frames])
def test_an_edge_to_nobody_is_told_with_the_users_column(way, tmp_path):
    edges = EDGES.drop(columns="weight").replace({"payee": {"bob": "eve"}})
    with pytest.raises(DataError, match=r"row 1 has payee 'eve': expected the id of a node"):
        way(NODES.drop(columns="id"), edges, tmp_path)
