"""Nodes as objects with columns by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from evergraph.server.app import create_app
from mixed_tables import mixed_edges, mixed_rows, write_mixed


def sent(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rows": [{k: v for k, v in row.items() if k != "label" or v} for row in rows]}


def test_rows_are_read_by_the_first_of_them(
    serve: Any, live: Any, call: Any, tmp_path: Path, caplog: Any
) -> None:
    client = serve()
    first = sent(mixed_rows(0, 30)) | {"edges": mixed_edges(0, 30), "key": "first"}
    assert client.post("/v1/deltas", json=first).json()["new_nodes"] == 30
    assert client.post("/v1/deltas", json=first).json()["new_nodes"] == 30  # counts once
    assert client.post("/v1/upsert", json=sent(mixed_rows(29, 31))).json()["news"]["new_nodes"] == 1
    told = client.get("/v1/columns").json()
    kinds = ["text", "category", "date", "number", "list", "boolean"]
    assert [row["read as"] for row in told["columns"]] == kinds
    kept = json.loads((tmp_path / "learner" / "columns.json").read_text())
    assert told["scheme"] == {name: kept[name] for name in told["scheme"]}
    scheme = client.folder.columns
    features = client.folder.learner._knowledge.graph.features
    expected = scheme.encode(pa.Table.from_pylist(mixed_rows(0, 31)))
    assert torch.equal(features[:31], expected)
    # What does not fit changes nothing.
    row = mixed_rows(31, 32)[0]
    for change, said in MISTAKES:
        answer = client.post("/v1/deltas", json={"rows": [row | change]})
        assert answer.status_code == 422
        assert answer.json()["error"].startswith(said)
    less = {"rows": [{k: v for k, v in row.items() if k != "venue"}]}
    assert "has no column 'venue'" in client.post("/v1/deltas", json=less).json()["error"]
    assert client.get("/v1/status").json()["nodes"] == 31
    # Numbers without names are mentioned once.
    for name in ("raw", "raw too"):
        body = {"nodes": [name], "features": [[0.5] * scheme.width], "labels": [None]}
        assert client.post("/v1/deltas", json=body).status_code == 200
    assert caplog.text.count("send rows to have them encoded") == 1
    # A table is read as the rows were.
    nodes, edges = write_mixed(tmp_path, 31, 35)
    edges.write_text("source,target\nn31,n0\n")
    asked = ("--nodes", str(nodes), "--edges", str(edges), "--json")
    done = json.loads(call("ingest", live(create_app(client.folder)), *asked)[0])
    assert (done["new_nodes"], done["nodes"]) == (4, 37)
    assert done["columns"][0]["read as"] == "text"


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"score": "high"}, "rows: row 1 has 'high' in column 'score': expected a number"),
    ({"published": "soon"}, "rows: row 1 has 'soon' in column 'published': expected a date"),
    ({"id": None}, "rows: row 1 has no 'id'"),
    ({"id": [1]}, "id of a node must be"),
]


def test_rows_and_features_do_not_mix(serve: Any, first: dict[str, Any]) -> None:
    client = serve()
    both = first | sent(mixed_rows(0, 1))
    assert "not both" in client.post("/v1/deltas", json=both).json()["error"]
    assert (
        "no usable column"
        in (client.post("/v1/deltas", json={"rows": [{"id": "a"}]}).json()["error"])
    )
    assert client.get("/v1/columns").json() == {"columns": [], "scheme": None}
    client.post("/v1/deltas", json=first)
    answer = client.post("/v1/deltas", json=sent(mixed_rows(0, 1)))
    assert answer.json()["error"].startswith("rows: the learner began with plain numbers")
