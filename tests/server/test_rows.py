"""Nodes as objects with columns by name; several labels and numbers over HTTP."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import torch
from fastapi.testclient import TestClient

from arrow_bytes import stream
from evergraph.core.errors import say_once
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.bodies import DeltaReader
from evergraph.server.http import ARROW
from evergraph.tables.measured import NumberEncoder
from evergraph.tables.scheme import Column, Scheme
from mixed_tables import mixed_edges, mixed_rows, write_mixed


def sent(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rows": [{k: v for k, v in row.items() if k != "label" or v} for row in rows]}


def test_rows_are_read_by_the_first_of_them(serve, live, call, tmp_path, caplog):
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
    more = client.post("/v1/deltas", json={"rows": [row | {"size": 1}]}).json()["error"]
    assert more.startswith("rows: has a column 'size' that the first table did not have")
    assert client.get("/v1/status").json()["nodes"] == 31
    # Numbers without names are mentioned once.
    say_once.cache_clear()  # in this process others may have said it already
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
    ({"id": None}, "rows: row 1 has no value in column 'id'"),
    ({"id": [1]}, "rows: column 'id' holds list"),
]


def test_rows_and_features_do_not_mix(serve, first):
    client = serve()
    both = first | sent(mixed_rows(0, 1))
    assert "not both" in client.post("/v1/deltas", json=both).json()["error"]
    assert (
        "no usable column"
        in (client.post("/v1/deltas", json={"rows": [{"id": "a", "f": None}]}).json()["error"])
    )
    assert client.get("/v1/columns").json() == {"columns": [], "scheme": None}
    client.post("/v1/deltas", json=first)
    answer = client.post("/v1/deltas", json=sent(mixed_rows(0, 1)))
    assert answer.json()["error"].startswith("rows: the learner began with plain numbers")


def test_a_name_that_is_left_out_is_a_gap_in_one_row_as_beside_others(serve):
    client = serve()
    people = [
        {"id": f"n{n}", "label": "xy"[n % 2], "age": n, "town": "ab"[n % 2]} for n in range(4)
    ]
    client.post("/v1/deltas", json={"rows": [*people, {"id": "gap", "label": "x", "town": "a"}]})
    for row in ({"age": 2}, {"town": "b"}, {}):
        alone = client.post("/v1/deltas", json={"rows": [{"id": f"alone {row}"} | row]})
        beside = [{"id": f"beside {row}"} | row, people[0] | {"id": f"whole {row}"}]
        assert alone.status_code == client.post("/v1/deltas", json={"rows": beside}).status_code
        assert alone.status_code == 200
        one, same, _ = client.folder.learner._knowledge.graph.features[-3:]
        assert one.equal(same)


def test_a_scheme_that_a_client_sends_is_checked_as_a_delta_is(serve):
    client = serve()
    scheme = Scheme((Column("age", NumberEncoder(median=3.0, scale=2.0, flag=False)),)).to_json()
    table = pa.table({"id": ["a"], "label": ["x"], "features": [[1.0]]})

    def told(columns: bytes) -> Any:
        mark = b'{"columns": ' + columns + b"}"
        body = stream(table.replace_schema_metadata({b"evergraph": mark}))
        return client.post("/v1/deltas", content=body, headers={"content-type": ARROW})

    column = scheme["columns"][0]
    for wrong in (
        [],
        "x",
        scheme | {"strict": 1},
        scheme | {"columns": [column | {"gaps": "<b>"}]},
        scheme | {"columns": [column | {"encoder": column["encoder"] | {"median": float("nan")}}]},
        scheme | {"columns": [column | {"encoder": column["encoder"] | {"scale": 0}}]},
        scheme | {"columns": [column, column | {"name": "size"}]},
    ):
        answer = told(json.dumps(wrong).encode())
        assert answer.status_code == 422
        assert answer.json()["error"]
    assert told(b"[" * 100_000).status_code == 422
    assert client.get("/v1/status").json()["nodes"] == 0
    assert told(json.dumps(scheme).encode()).status_code == 200
    assert client.get("/v1/columns").json()["scheme"] == scheme


FEATURES = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
TOLD: dict[str, list[Any]] = {
    "labels": [["x", "z"], ["x"], ["y"], []],
    "numbers": [1, 1.5, 7.0, 8.0],
}


def client(kind: str, folder: Path) -> TestClient:
    given = {"head": {"name": "targets", "kind": kind, "width": 32}}
    return TestClient(
        create_app(LearnerFolder.open(folder, given)), base_url="http://127.0.0.1:8000"
    )


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_they_are_told_and_predicted(kind, tmp_path):
    with client(kind, tmp_path / "learner") as asked:
        if kind == "labels":
            wrong = {"nodes": ["a"], "features": [[1.0, 0.0]], "labels": ["x"]}
            answer = asked.post("/v1/deltas", json=wrong)
            assert answer.status_code == 422
            assert answer.json() == {"error": "labels of a node must be a list, not 'x'"}
        body = {"nodes": ["a", "b", "c", "d"], "features": FEATURES, "labels": TOLD[kind]}
        assert asked.post("/v1/deltas", json=body).json()["new_nodes"] == 4
        more = {"nodes": ["e"], "features": [[1.0, 0.0]], "edges": [["a", "e"]]}
        asked.post("/v1/deltas", json=more)
        late = {"labels": [["e", TOLD[kind][0]]]}
        assert asked.post("/v1/labels", json=late).json()["predicted"] == 1
        [found] = asked.post("/v1/predictions", json={"ids": ["e"]}).json()["predictions"]
        if kind == "labels":
            assert found["labels"] == ["x"] or found["labels"] == ["x", "z"]
            assert len(found["probabilities"]) == len(found["labels"])
        else:
            assert found["target"] == pytest.approx(1.2, abs=0.8)
        status = asked.get("/v1/status").json()
        assert status["metric"] == {"labels": "micro F1", "numbers": "mean absolute error"}[kind]
        assert status["names"] == (["x", "z", "y"] if kind == "labels" else [])
        assert asked.get("/v1/history").json()["curve"][0]["seq"] == 3


@pytest.mark.parametrize(
    ("kind", "told", "label"),
    [("numbers", -1, -1), ("class", -1, None), ("labels", ["x", "y"], ["x", "y"])],
)
def test_a_label_in_arrow_is_read_as_the_learner_has_labels(kind, told, label, tmp_path):
    sent = stream({"id": ["a"], "label": [told], "f": [2.0]})
    given = None if kind == "class" else {"head": {"name": "targets", "kind": kind}}
    with LearnerFolder.open(tmp_path / "learner", given) as folder:
        delta = DeltaReader(folder, most=9).read(sent, model="delta", kind=ARROW)
        assert (delta.labels, delta.scheme is None) == ((label,), False)


def test_what_becomes_of_repeated_edges_is_said_once_by_a_service(tmp_path, caplog):
    edges = {"edges": [["a", "b"], ["b", "a"]], "weights": [1.0, 2.0]}
    body = {"nodes": ["a", "b"], "features": [[1.0], [2.0]], **edges}
    with LearnerFolder.open(tmp_path / "learner") as folder:
        reader = DeltaReader(folder, most=9)
        for _ in range(2):
            reader.read(json.dumps(body).encode(), model="delta", kind="json")
    assert caplog.text.count("an edge again") == 1


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_a_question_with_rows_changes_nothing_and_known_targets_are_told(kind, tmp_path):
    with client(kind, tmp_path / "learner") as asked:
        column = {"labels": "labels", "numbers": "target"}[kind]
        body = {"nodes": ["a", "b", "c", "d"], "features": FEATURES, "labels": TOLD[kind]}
        asked.post("/v1/deltas", json=body)
        before = asked.get("/v1/status").json()
        new = {"nodes": ["e"], "features": [[1.0, 0.0]], "edges": [["a", "e"]]}
        dry = asked.post("/v1/predictions", json=new).json()
        assert (dry["seq"], asked.get("/v1/status").json()) == (before["seq"], before)
        asked.post("/v1/deltas", json=new)
        told = asked.post("/v1/predictions", json={"ids": ["e", "b"], "known": True}).json()
        [added, old] = told["predictions"]
        assert added.pop("known") is None
        assert old["known"] == TOLD[kind][1]
        assert dry["predictions"][0][column] == pytest.approx(added[column], abs=1e-5)
        for wrong, rule in (({}, "ids"), (new | {"known": True}, "known must be false")):
            answer = asked.post("/v1/predictions", json=wrong)
            assert (answer.status_code, rule in answer.json()["error"]) == (422, True)
        assert asked.post("/v1/predictions", json=new).status_code == 409


@pytest.mark.parametrize("kind", ["json", "arrow"])
def test_a_service_takes_the_names_and_kinds_of_a_first_body_as_parameters(kind, serve):
    client = serve()
    nodes = pd.DataFrame(
        {
            "customer_id": ["ann", "bob", "cid", "dan"],
            "segment": ["gold", "blue", None, "gold"],
            "age": [40.0, 20.0, 30.0, 50.0],
            "town": ["u", "v", "u", "v"],
            "code": ["1", "2", "1", "2"],
        }
    )
    edges = pd.DataFrame({"payer": ["ann", "cid"], "payee": ["bob", "ann"], "amount": [2.5, 4.0]})
    names = {"id": "customer_id", "label": "segment", "source": "payer", "target": "payee"}
    asked = names | {"weight": "amount", "columns": json.dumps({"code": "category"})}
    if kind == "json":
        pairs = edges[["payer", "payee"]].to_numpy().tolist()
        body: dict[str, Any] = {
            "json": {"rows": json.loads(nodes.to_json(orient="records")), "edges": pairs}
        }
    else:
        tables = [pa.Table.from_pandas(each, preserve_index=False) for each in (nodes, edges)]
        body = {"content": b"".join(map(stream, tables)), "headers": {"content-type": ARROW}}
    done = client.post("/v1/deltas", params=asked, **body)
    assert done.status_code == 200, done.text
    assert done.json()["new_nodes"] == 4
    kinds = {row["column"]: row["read as"] for row in client.get("/v1/columns").json()["columns"]}
    assert kinds == {"age": "number", "town": "category", "code": "category"}
    assert client.get("/v1/status").json()["names"] == ["gold", "blue"]
    assert client.get("/v1/status").json()["edges"] == 2
    row = {"customer_id": "eve", "segment": None, "age": 45.0, "town": "u", "code": "2"}
    asked = client.post(
        "/v1/predictions",
        params={"id": "customer_id", "label": "segment"},
        json={"rows": [row], "edges": [["eve", "ann"]]},
    )
    assert [each["id"] for each in asked.json()["predictions"]] == ["eve"]
    unnamed = client.post("/v1/predictions", json={"rows": [row]})
    assert "is it id='customer_id'?" in unnamed.json()["error"]
    wrong = client.post("/v1/upsert", params={"columns": '{"age": "text"}'}, **body)
    assert wrong.status_code == 422
    for params, said in (
        ({"columns": "age"}, "columns must be kinds by name as JSON"),
        ({"columns": '{"age": "nummer"}'}, "column 'age' cannot be read as 'nummer'"),
        ({"labl": "x"}, "there is no parameter 'labl' here: did you mean 'label'"),
    ):
        assert said in client.post("/v1/deltas", params=params, **body).json()["error"]
