"""What the service does when everything is well."""

import json
import logging
from dataclasses import dataclass
from threading import Event, Thread

import pytest
import torch
from typer.testing import CliRunner

from evergraph.cli.app import app
from evergraph.core.errors import ConfigurationError
from evergraph.online.delta import Delta
from evergraph.online.folder.backup import restore
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server import schema
from evergraph.server.app import create_app
from evergraph.server.auth import Tokens
from evergraph.server.bodies import DeltaBody
from evergraph.server.client import Client, arrow_from_delta
from evergraph.server.http import ARROW, Limits


def test_a_delta_is_learned_and_told_as_the_learner_itself_would(lasting, learner, first):
    learned = learner()
    learned.apply(
        Delta(
            nodes=tuple(first["nodes"]),
            features=torch.tensor(first["features"]),
            labels=tuple(first["labels"]),
            edges=tuple(map(tuple, first["edges"])),
        )
    )
    classes, shares = learned.predict_proba(["c", 3])
    told = lasting.post("/v1/predictions", json={"ids": ["c", 3], "all": True}).json()
    assert (told["seq"], told["classes"]) == (1, list(classes))
    for row, expected, label in zip(told["predictions"], shares.tolist(), "xy", strict=True):
        assert row["probabilities"] == expected
        assert (row["label"], row["probability"]) == (label, max(expected))
    status = lasting.get("/v1/status").json()
    assert (status["nodes"], status["edges"], status["labelled"]) == (6, 3, 4)
    assert (status["names"], status["seq"], status["waiting"]) == (["x", "y"], 1, 0)


def test_only_what_is_new_of_an_upsert_counts(client, first):
    body = {name: value for name, value in first.items() if name != "key"}
    told = client.post("/v1/upsert", json=body)
    assert (told.status_code, told.json()["seq"]) == (200, 1)
    assert told.json()["news"]["known_nodes"] == 6
    body |= {"late": [["c", "y"]], "edges": [["c", "a"], ["c", 3]], "forgotten": ["b", "nobody"]}
    told = client.post("/v1/upsert", json=body).json()
    assert (told["seq"], told["predicted"], told["right"]) == (2, 1, 0)
    assert len(told["news"]) == 13
    assert {name: count for name, count in told["news"].items() if count} == {
        "known_nodes": 6,
        "new_edges": 1,
        "known_edges": 1,
        "new_labels": 1,
        "forgotten": 1,
    }
    keyed = {"headers": {"Idempotency-Key": "k"}}
    refused = client.post("/v1/upsert", json={"edges": [["a", 3]]}, **keyed)
    assert (refused.status_code, "takes no key" in refused.json()["error"]) == (422, True)
    assert client.post("/v1/upsert", json={"edges": [["a", "nobody"]]}).status_code == 422
    assert client.get("/v1/status").json()["seq"] == 2


CHANGES = {
    "edges": [["a", "c"], ["b", "c"]],
    "weights": [4, 0.5],
    "removed_edges": [["b", "a"]],
    "updated": ["c"],
    "updated_features": [[0.0, 0.9]],
}


def test_changes_teach_what_the_final_graph_does(serve, first):
    changed, arrow, at_once = serve(name="json"), serve(name="arrow"), serve(name="once")
    for service in (changed, arrow):
        assert service.post("/v1/deltas", json=first).status_code == 200
    assert changed.post("/v1/deltas", json=CHANGES).json()["seq"] == 2
    matrix = torch.tensor(CHANGES["updated_features"])
    sent = arrow_from_delta(Delta(**CHANGES | {"updated_features": matrix}))
    assert arrow.post("/v1/deltas", content=sent, headers={"Content-Type": ARROW}).is_success
    rows = [*first["features"]]
    rows[2] = [0.0, 0.9]
    last = {"features": rows, "edges": [["a", "c"], [1, 3], ["c", "b"]], "weights": [4, 1, 0.5]}
    at_once.post("/v1/deltas", json=first | last)

    def told(service):
        asked = {"ids": first["nodes"], "all": True}
        found = service.post("/v1/predictions", json=asked).json()["predictions"]
        return [each["probabilities"] for each in found]

    assert told(changed) == told(arrow)
    expected = torch.tensor(told(at_once))
    torch.testing.assert_close(torch.tensor(told(changed)), expected, atol=1e-5, rtol=0)


def test_the_same_key_counts_once(client, first, fingerprint):
    before = fingerprint(client)
    again = client.post("/v1/deltas", json=first)
    assert (again.status_code, again.json()["seq"], again.json()["new_nodes"]) == (200, 1, 6)
    assert fingerprint(client) == before
    headers = {"Idempotency-Key": "late"}
    body = {"labels": [["c", "z"]]}
    told = client.post("/v1/labels", json=body, headers=headers).json()
    assert client.post("/v1/labels", json=body | {"key": "late"}).json() == told
    assert client.get("/v1/status").json()["seq"] == 2


def test_a_node_is_explained_exactly(lasting):
    told = lasting.get("/v1/nodes/c").json()
    assert (told["label"], told["known"], told["whole"]) == ("x", None, True)
    near = {n["id"]: (n["hops"], n["label"]) for n in told["neighbours"]}
    assert near == {"c": (0, None), "a": (1, "x"), "b": (2, "x")}
    joined = [{told["neighbours"][end]["id"] for end in edge} for edge in told["edges"]]
    assert sorted(map(sorted, joined)) == [["a", "b"], ["a", "c"]]
    for place, score in enumerate(told["scores"]):
        spoken = sum(voice["says"][place] for voice in told["voices"])
        total = spoken + told["others"][place] + told["rest"][place]
        assert total == pytest.approx(score, abs=1e-4)
        assert told["rest"][place] == pytest.approx(0, abs=1e-3)  # hardly an intercept


def test_ids_of_both_kinds_are_found(client):
    assert client.get("/v1/nodes/1").json()["id"] == 1
    body = {"nodes": ["1", "a/b?", "ü"], "features": [[1, 0], [1, 0], [1, 0]]}
    assert client.post("/v1/deltas", json=body).status_code == 200
    assert client.get("/v1/nodes/1").json()["id"] == "1"
    assert client.get("/v1/nodes/1", params={"integer": True}).json()["id"] == 1
    assert client.get("/v1/nodes/a%2Fb%3F").json()["id"] == "a/b?"
    assert client.get("/v1/nodes/%C3%BC").json()["id"] == "ü"


ODD = [".", "..", "../b", "a//b", "/", "a\nb", "\n", "\r\n\t\0", " ", "%2e", "a?b#c&d=e+f"]


def test_every_id_can_be_asked(client, live):
    body = {"nodes": ODD, "features": [[1, 0]] * len(ODD)}
    assert client.post("/v1/deltas", json=body).status_code == 200
    sent = Client(live(client.app))
    for node in ODD:
        assert sent.explain(node, integer=False, limit=9)["id"] == node
        for path in ("/v1/nodes", "/v1/predictions"):
            told = client.get(path, params={"node": node}).json()
            assert told.get("id", told.get("predictions", [{}])[0].get("id")) == node
    assert client.get("/v1/nodes/a%0Ab").json()["id"] == "a\nb"
    assert client.get("/v1/nodes").status_code == 422


def test_predictions_answer_while_a_delta_is_being_learned(client, fingerprint, monkeypatch):
    before = fingerprint(client)
    begun, gate, answers = Event(), Event(), []
    learn = client.folder.learner.apply_batch

    def slow(deltas):
        begun.set()
        assert gate.wait(20)
        return learn(deltas)

    monkeypatch.setattr(client.folder.learner, "apply_batch", slow)
    body = {"nodes": ["new"], "features": [[0.0, 1.0]], "labels": ["z"]}
    sender = Thread(target=lambda: answers.append(client.post("/v1/deltas", json=body)))
    sender.start()
    assert begun.wait(20)
    assert fingerprint(client) == before
    gate.set()
    sender.join()
    assert answers[0].json()["seq"] == 2
    assert fingerprint(client) != before
    assert client.post("/v1/predictions", json={"ids": ["new"]}).json()["seq"] == 2


def test_every_answer_has_safe_headers(lasting):
    for path in ("/", "/docs", "/v1/status", "/nothing"):
        headers = lasting.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    assert lasting.get("/healthz").json() == {"status": "ok"}


@dataclass(frozen=True)
class Weighed:
    """Something on scales.

    Attributes:
        node: what it is
            called.
        grams: its ``weight``.
        note: if there is one.

    >>> Weighed("a", 1).note
    """

    node: str
    grams: int
    note: str | None = None


def test_a_field_of_a_record_is_written_once(monkeypatch):
    monkeypatch.setitem(schema.JSON_NAMES, Weighed, {"node": "id"})
    assert schema.to_json([Weighed("a", 1), Weighed("b", 2, "new")]) == [
        {"id": "a", "grams": 1},
        {"id": "b", "grams": 2, "note": "new"},
    ]
    found = schema.described(Weighed, "W", extra=(int, ...)).model_json_schema()
    said = {name: part.get("description") for name, part in found["properties"].items()}
    assert said == {
        "id": "What it is called.",
        "grams": "Its `weight`.",
        "note": "If there is one.",
        "extra": None,
    }
    assert (found["description"], found["required"]) == (
        "Something on scales.",
        ["id", "grams", "extra"],
    )


def test_suggestions_and_alarms_are_those_of_the_learner(lasting):
    told = lasting.get("/v1/suggestions?n=1").json()
    (found,) = lasting.folder.learner.suggest(1)
    assert told == {"seq": 1, "suggestions": [schema.to_json(found)]}
    assert told["suggestions"][0]["id"] in ("c", 3)
    assert len(lasting.get("/v1/suggestions").json()["suggestions"]) == 2
    assert lasting.get("/v1/suggestions?n=0").status_code == 422
    assert lasting.get("/v1/alarms").json() == {"seq": 1, "alarms": []}


def test_an_alarm_is_told_and_logged_once(client, caplog):
    for number in range(11):
        nodes = [f"{number}-{i}" for i in range(200)]
        # What is x becomes y with the last delta.
        rows = [[1.0, 0.0] if i % 2 else [0.0, 1.0] for i in range(200)]
        labels = ["xy"[(i % 2 == 0) ^ (number == 10)] for i in range(200)]
        body = {"nodes": nodes, "features": rows, "labels": labels, "key": str(number)}
        client.post("/v1/deltas", json=body)
    client.post("/v1/deltas", json=body)  # again, with the same key
    (alarm,) = client.get("/v1/alarms").json()["alarms"]
    assert (alarm["seq"], alarm["value"]) == (12, 0.0)
    warned = [record.message for record in caplog.records if record.message.startswith("alarm")]
    assert warned == [f"alarm: {alarm['message']}"]
    lines = client.get("/metrics").text.splitlines()
    assert "evergraph_alarm 1.0" in lines
    assert "evergraph_predicted 2200.0" in lines
    assert "evergraph_right 2000.0" in lines


def test_now_leaves_nothing_of_what_was_forgotten(client, caplog):
    secret = {"nodes": ["secret"], "features": [[0.5, 0.5]], "labels": ["hidden"]}
    client.post("/v1/deltas", json=secret)
    client.post("/v1/compact", json={})
    client.post("/v1/forget", json={"ids": ["secret"]})
    assert client.post("/v1/compact", json={"now": False}).json()["seq"] == 3
    with caplog.at_level(logging.INFO, "evergraph.audit"):
        done = client.post("/v1/compact", json={"now": True, "keys": True})
    assert done.status_code == 200
    assert done.json()["seq"] == 3
    assert done.json()["bytes_after"] < done.json()["bytes_before"]
    assert "folder compacted" in caplog.text
    for path in client.folder.path.rglob("*"):
        if path.is_file():
            assert b"secret" not in path.read_bytes()
            assert b"hidden" not in path.read_bytes()
    status = client.get("/v1/status").json()
    assert (status["seq"], status["names"]) == (3, ["x", "y"])
    assert client.get("/v1/predictions/a").json()["predictions"][0]["label"] == "x"
    assert client.post("/v1/forget", json={"ids": ["b"]}).json()["seq"] == 4


def test_a_node_is_deleted_by_any_id(client, fingerprint):
    before = fingerprint(client)
    assert client.delete("/v1/nodes/nobody").status_code == 404
    assert fingerprint(client) == before
    client.post("/v1/deltas", json={"nodes": ["1", "a/b?", ".."], "features": [[1, 0]] * 3})
    assert client.delete("/v1/nodes/a%2Fb%3F").json()["seq"] == 3
    assert client.delete("/v1/nodes", params={"node": ".."}).status_code == 200
    assert client.delete("/v1/nodes/2", params={"integer": True}).status_code == 200
    # The string first, then the integer; with a key each counts once.
    key = {"Idempotency-Key": "gone"}
    assert client.delete("/v1/nodes/1").status_code == 200
    done = client.delete("/v1/nodes/1", headers=key)
    assert client.delete("/v1/nodes/1", headers=key).json() == done.json()
    assert client.get("/v1/ids").json()["ids"] == ["a", "b", "c", 3]


def test_refit_learns_everything_again(live, learner, first, tmp_path):
    with LearnerFolder.open(tmp_path, make=learner) as folder:
        client = Client(live(create_app(folder, limits=Limits())))
        folder.submit(DeltaBody(**first).delta())
        folder.submit(Delta(forgotten=(first["nodes"][0],)))
        labelled = folder.learner.status().labelled
        assert (done := client.refit())["seq"] == 3
        assert done["counted"] == labelled > 0
        again = CliRunner().invoke(app, ["refit", client.url], catch_exceptions=False)
        assert again.stdout == f"delta 4: {labelled} labelled nodes learned again\n"
    with LearnerFolder.open(tmp_path, make=learner) as folder:
        assert folder.seq == 4  # it is in the journal, as any other change


def test_only_who_may_write_may_compact(serve):
    service = serve(tokens=Tokens((("read", "r" * 20), ("follow", "f" * 20))))
    for token in ("r" * 20, "f" * 20):
        headers = {"Authorization": f"Bearer {token}"}
        assert service.post("/v1/compact", json={}, headers=headers).status_code == 403
    asked = {token: {"Authorization": f"Bearer {token * 20}"} for token in "rf"}
    assert service.get("/v1/backup", headers=asked["r"]).status_code == 403
    assert service.get("/v1/backup", headers=asked["f"]).content[257:262] == b"ustar"


def test_a_service_is_backed_up_from_afar(live, learner, first, tmp_path):
    with LearnerFolder.open(tmp_path / "learner", make=learner) as folder:
        folder.submit(DeltaBody(**first).delta())
        for number in range(1, 5):
            if number <= 3:
                folder.compact()
            row = {"nodes": [f"n{number}"], "features": [[0.1, number]], "key": f"k{number}"}
            folder.submit(DeltaBody(**row).delta())
        client = Client(live(create_app(folder, limits=Limits())))
        told = client.backup(tmp_path / "copy.tar")
        assert (told.seq, told.snapshot) == (5, 3)
        restore(tmp_path / "copy.tar", tmp_path / "made")
        assert client.backup(tmp_path / "copy").seq == 5
        with pytest.raises(ConfigurationError, match="exists already"):
            client.backup(tmp_path / "copy")
        with LearnerFolder.open(tmp_path / "made", make=learner) as made:
            state, own = made.learner.state(), folder.learner.state()
            assert all(state[name].equal(value) for name, value in own.items())
            assert made.submit(DeltaBody(**row).delta()).seq == 5
        names = ["copy", "copy.tar", "learner", "made"]
        assert sorted(path.name for path in tmp_path.iterdir()) == names
        # The commands do the same.
        for words in (["compact", client.url, "--now"], ["backup", client.url, f"{tmp_path}/2"]):
            done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
            assert json.loads(done.stdout)["seq"] == 5
        assert [path.name for path in (tmp_path / "learner").glob("snapshot-*")] == ["snapshot-5"]
