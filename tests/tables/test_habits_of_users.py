"""Every way in, against the habits that users bring along: one table of both."""

import io
import json
import shlex
import sqlite3
from pathlib import Path

import networkx as nx
import pandas as pd
import pyarrow as pa
import pytest
import torch
from fastapi.testclient import TestClient
from torch_geometric.data import Data

import evergraph as eg
from evergraph.core.errors import DataError
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app

IDS = [*"abcdef"]
ENDS = [("a", "b"), ("b", "c"), ("d", "e"), ("e", "f"), ("a", "d")]
WEIGHTS = [2.5, 1.0, 1.0, 4.0, 0.5]
TEXTS = ["x", "x", None, "y", None, "y"]
BOOLEANS = [True, True, None, False, None, False]
THEIRS = {"id": "who", "label": "kind", "source": "payer", "target": "payee", "weight": "amount"}
OPTIONS = [word for ours, theirs in THEIRS.items() for word in (f"--{ours}", theirs)]


def tables(shape: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the same graph as two tables of this shape."""
    nodes = pd.DataFrame({"id": IDS, "label": BOOLEANS if shape == "booleans" else TEXTS})
    nodes["label"] = nodes["label"].astype("boolean" if shape == "booleans" else "string")
    if shape != "no features":
        nodes["f"] = [1.0, 0.9, 0.8, 0.1, 0.2, 0.0]
    edges = pd.DataFrame(ENDS, columns=["source", "target"])
    if shape in ("weights", "names"):
        edges["weight"] = WEIGHTS
    if shape == "names":
        return nodes.rename(columns=THEIRS), edges.rename(columns=THEIRS)
    return nodes, edges


def ingested(call, shape, *given):
    """Return the model that ``evergraph ingest`` makes; ``given`` are its tables."""
    call("ingest", "learner", *given, *(OPTIONS if shape == "names" else ()))
    return eg.ContinualNodeClassifier.load("learner")


def files(call, shape, suffix):
    nodes, edges = tables(shape)
    for name, table in (("nodes", nodes), ("edges", edges)):
        if suffix == "parquet":
            table.to_parquet(f"{name}.parquet")
        else:
            table.to_csv(f"{name}.{suffix}", index=False, sep="\t" if suffix == "tsv" else ",")
    return ingested(call, shape, "--nodes", f"nodes.{suffix}", "--edges", f"edges.{suffix}")


def sql(call, shape, _):
    with sqlite3.connect("graph.db") as database:
        for name, table in zip(("nodes", "edges"), tables(shape), strict=True):
            if "label" in table and shape == "booleans":
                table["label"] = table["label"].map(
                    {True: "true", False: "false"}
                )  # SQLite has none
            table.to_sql(name, database, index=False)
    database.close()
    asked = ("--nodes", "select * from nodes", "--edges", "select * from edges")
    return ingested(call, shape, "--from", "sqlite:graph.db", *asked)


def frames(call, shape, convert):
    nodes, edges = map(convert, tables(shape))
    names = THEIRS if shape == "names" else {}
    return eg.ContinualNodeClassifier(width=32).partial_fit(nodes, edges=edges, **names)


def triples(call, shape, _):
    """Return the model of lists, in which weights stand beside the ends of an edge."""
    nodes, _ = tables("booleans" if shape == "booleans" else "weights")
    ends = ENDS if shape != "weights" else [(*e, w) for e, w in zip(ENDS, WEIGHTS, strict=True)]
    labels = BOOLEANS if shape == "booleans" else TEXTS
    model = eg.ContinualNodeClassifier(width=32)
    if shape == "no features":
        return model.partial_fit(edges=ends, labels=dict(zip(IDS, labels, strict=True)))
    return model.partial_fit(IDS, nodes[["f"]].to_numpy(), labels, ends)


def networkx(call, shape, _):
    nodes, _ = tables("booleans" if shape == "booleans" else "weights")
    graph = nx.Graph()
    for row in nodes.itertuples():
        known = {} if pd.isna(row.label) else {"label": row.label}
        graph.add_node(row.id, **known, **({} if shape == "no features" else {"x": [row.f]}))
    for (start, end), weight in zip(ENDS, WEIGHTS, strict=True):
        graph.add_edge(start, end, **({"weight": weight} if shape == "weights" else {}))
    return eg.ContinualNodeClassifier(width=32).partial_fit(graph)


def pyg(call, shape, _):
    nodes, _ = tables("weights")
    rows = torch.tensor([[IDS.index(end) for end in edge] for edge in ENDS]).t()
    data = Data(edge_index=torch.cat([rows, rows.flip(0)], dim=1), num_nodes=6)
    data.y = torch.tensor([0 if label == "x" else 1 for label in TEXTS])
    data.y = (
        data.y == 0
        if shape == "booleans"
        else data.y.where(torch.tensor([bool(t) for t in TEXTS]), -1)
    )
    if shape != "no features":
        data.x = torch.tensor(nodes[["f"]].to_numpy().tolist())
    if shape == "weights":
        data.edge_weight = torch.tensor(WEIGHTS * 2)
    if shape == "masks":
        data.train_mask = data.val_mask = data.test_mask = torch.ones(6, dtype=torch.bool)
    return eg.ContinualNodeClassifier(width=32).partial_fit(data, ids=IDS)


def lines(call, shape, _, monkeypatch):
    nodes, edges = tables(shape)
    names = THEIRS if shape == "names" else dict(zip(THEIRS, THEIRS, strict=True))
    said = []
    for row in nodes.to_dict("records"):
        said.append(
            {"node": row.pop(names["id"]), **{k: v for k, v in row.items() if not pd.isna(v)}}
        )
    for row in edges.to_dict("records"):
        more = {names["weight"]: row[names["weight"]]} if names["weight"] in row else {}
        said.append({"edge": [row[names["source"]], row[names["target"]]], **more})
    text = "".join(json.dumps(each) + "\n" for each in said)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    given = ("--label", "kind", "--weight", "amount") if shape == "names" else ()
    call("ingest", "learner", "-", *given)
    return eg.ContinualNodeClassifier.load("learner")


def over_http(call, shape, _):
    """Return the model of a service that got one body of JSON."""
    nodes, edges = tables(shape)
    names = THEIRS if shape == "names" else dict(zip(THEIRS, THEIRS, strict=True))
    body = {
        "rows": json.loads(nodes.to_json(orient="records")),
        "edges": edges[[names["source"], names["target"]]].to_numpy().tolist(),
    }
    if names["weight"] in edges:
        body["weights"] = edges[names["weight"]].tolist()
    asked = {"id": "who", "label": "kind"} if shape == "names" else {}
    with (
        LearnerFolder.open("learner", {"head": {"name": "auto", "width": 32}}) as folder,
        TestClient(create_app(folder), base_url="http://127.0.0.1:8000") as client,
    ):
        done = client.post("/v1/deltas", json=body, params=asked)
        assert done.status_code == 200, done.text
    return eg.ContinualNodeClassifier.load("learner")


WAYS = {
    "csv": (files, "csv"),
    "tsv": (files, "tsv"),
    "parquet": (files, "parquet"),
    "sql": (sql, None),
    "pandas": (frames, lambda table: table),
    "arrow": (frames, pa.Table.from_pandas),
    "lists": (triples, None),
    "networkx": (networkx, None),
    "pyg": (pyg, None),
    "lines": (lines, None),
    "json": (over_http, None),
}
PLAIN = [way for way in WAYS if way != "tsv"]  # a CSV but for its delimiter
SHAPES = {
    "names": ["csv", "tsv", "parquet", "sql", "pandas", "arrow", "lines", "json"],  # have columns
    "no features": PLAIN,
    "weights": ["lists", "networkx", "pyg"],  # where columns have names, these have weights too
    "booleans": PLAIN,
    "masks": ["pyg"],  # a live learner needs none, and says that it ignores them
}


@pytest.mark.parametrize(
    ("shape", "way"), [(shape, way) for shape, ways in SHAPES.items() for way in ways]
)
def test_every_way_in_takes_what_users_have(shape, way, call, narrow_heads, monkeypatch):
    read, more = WAYS[way]
    model = read(call, shape, more, *([monkeypatch] if way == "lines" else []))
    status = model.status()
    known = 6 if (shape, way) == ("booleans", "pyg") else 4  # a boolean tensor has no gaps
    assert (status.nodes, status.edges, status.labelled) == (6, 5, known)
    named = {"booleans": {"true", "false"}}.get(shape, {0, 1} if way == "pyg" else {"x", "y"})
    assert set(model.classes_.tolist()) == named
    assert model.predict(["a"]).tolist() == model.predict(["b"]).tolist()
    if shape != "no features":  # here both halves look alike
        assert model.predict(["a"]).tolist() != model.predict(["f"]).tolist()
    graph = model.learner_.knowledge.graph
    weights = WEIGHTS if shape in ("names", "weights") else [1.0] * 5
    assert sorted(graph.weights_of(*graph.edges()).tolist()) == sorted(2 * weights)


def test_a_graph_without_features_grows_and_takes_none_later(call, narrow_heads):
    nodes, edges = tables("no features")
    nodes.to_csv("nodes.csv", index=False)
    edges.to_csv("edges.csv", index=False)
    out, err = call("ingest", "learner", "--edges", "edges.csv")  # the nodes are those of the edges
    assert "edges.csv: there are no features: a column of ones is used" in err
    assert "4 labels added" in call("ingest", "learner", "--nodes", "nodes.csv")[0]
    Path("nodes.csv").write_text("id,label\na,x\ng,y\n")
    Path("edges.csv").write_text("source,target\ng,f\n")
    out, _ = call("ingest", "learner", "--nodes", "nodes.csv", "--edges", "edges.csv")
    assert "1 new node, 1 known node skipped, 1 new edge, 1 label added" in out
    Path("edges.csv").write_text("source,target\nh,g\n")
    assert "1 new node" in call("ingest", "learner", "--edges", "edges.csv")[0]
    # With a table of nodes, an unknown end is a mistake, named as the user calls it.
    Path("edges.csv").write_text("payer,payee\nzoe,g\n")
    given = shlex.split("--nodes nodes.csv --edges edges.csv --source payer --target payee")
    assert "row 1 has 'zoe' in column 'payer'" in call("ingest", "learner", *given, expect=2)[1]
    model = eg.ContinualNodeClassifier.load("learner")
    assert model.status().nodes == 8
    with pytest.raises(DataError, match="2 columns, but those of the graph have 1"):
        model.partial_fit(["i"], [[1.0, 2.0]])
    model = eg.ContinualNodeClassifier(width=32).partial_fit(["a", "b"], [[1.0], [0.5]])
    with pytest.raises(DataError, match="features must be given for 1 new nodes, 1 a node"):
        model.partial_fit(["c"])
