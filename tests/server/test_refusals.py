"""Whatever is refused has its status and one sentence, and changes nothing."""

import gc
import json
import logging
import weakref
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import anyio
import pytest

from evergraph.online.intake import Bounds
from evergraph.server.auth import Tokens
from evergraph.server.bodies import DeltaReader
from evergraph.server.http import ARROW, RefusedError, failure
from waiting import until

NEW = {"nodes": ["n"], "features": [[1.0, 0.0]]}
DEEP = "[" * 5000 + "]" * 5000
JSON = {"Content-Type": "application/json"}
READ, WRITE = "r" * 20, "w" * 20


TWICE = " must come once in an object, not twice"


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        # What a change or a question says; bytes are JSON as it is sent, None is a GET.
        ("/v1/predictions", {"ids": ["nobody"]}, 404, "node 'nobody' is not in the graph"),
        ("/v1/predictions", {"ids": [True]}, 422, "ids[0]: must be a string"),
        ("/v1/predictions", {"ids": [""]}, 422, "ids[0]: must be a string of 1 to 1024 characters"),
        ("/v1/predictions", {}, 422, "ids: a field is required"),
        ("/v1/predictions", {"ids": ["a"], "every": 1}, 422, "every: extra inputs"),
        ("/v1/forget", {"ids": ["nobody"]}, 404, "'nobody'"),
        ("/v1/forget", {"ids": ["a", "a"]}, 409, "'a' comes twice"),
        ("/v1/forget", {"ids": []}, 422, "ids: "),
        ("/v1/labels", {"labels": [["nobody", "x"]]}, 404, "'nobody'"),
        ("/v1/labels", {"labels": [["a", None]]}, 422, "labels[0][1]: must be"),
        ("/v1/deltas", {"nodes": ["a"], "features": [[1, 2]]}, 409, "'a' is in the graph already"),
        ("/v1/deltas", {"nodes": ["n"], "features": [[1, 2, 3]]}, 422, "3 columns"),
        ("/v1/deltas", {"nodes": ["n", "m"], "features": [[1, 2], [1]]}, 422, "rows of one width"),
        ("/v1/deltas", {"nodes": ["n"], "features": [[1, 1e39]]}, 422, "must be finite"),
        ("/v1/deltas", {"nodes": ["n"], "features": [[1, "2"]]}, 422, "features[0][1]"),
        ("/v1/deltas", NEW | {"edges": [["n", "nowhere"]]}, 422, "'nowhere' is not in the graph"),
        ("/v1/deltas", NEW | {"key": "first"}, 409, "the key 'first' belongs to delta 1"),
        ("/v1/deltas", {"removed_edges": [["b", "c"]]}, 404, "the graph has no such edge"),
        ("/v1/deltas", {"removed_edges": [["a"]]}, 422, "removed_edges[0]"),
        ("/v1/deltas", {"edges": [["b", "c"]], "weights": ["1"]}, 422, "weights[0]"),
        ("/v1/deltas", {"weights": [1]}, 422, "a delta must add, change or remove"),
        ("/v1/deltas", {}, 422, "a delta must add, change or remove"),
        ("/v1/deltas", [], 422, "body: input should be an object"),
        ("/v1/compact", {"keys": True}, 422, "keys: requires"),
        ("/v1/compact", {"now": 1}, 422, "now: "),
        # Addresses and their parameters.
        ("/v1/nodes/nobody", None, 404, "node 'nobody' is not in the graph"),
        ("/v1/nodes/a?integer=true", None, 422, "an integer id must be a whole number"),
        ("/v1/nodes/a?limit=0", None, 422, "limit: "),
        ("/v2/status", None, 404, "there is nothing at /v2/status"),
        ("/v1/deltas", None, 405, "/v1/deltas does not take GET"),
        ("/v1/ids?limt=3", None, 400, "there is no parameter 'limt' here: did you mean 'limit'"),
        ("/v1/ids?x=3", None, 400, "there is no parameter 'x' here: it takes start, limit, after"),
        ("/v1/ids?start=1&start=2", None, 400, "parameter 'start' must be given once, not twice"),
        ("/v1/predictions/a?integr=1", None, 400, "did you mean 'integer'"),
        ("/v1/predictions?aftr=1", {"ids": ["a"]}, 400, "did you mean 'after'"),
        ("/v1/deltas?key=a", {}, 400, "there is no parameter 'key' here: it takes repeated"),
        ("/?x=1", None, 400, "it takes none"),
        # Keys that come twice in an object.
        ("/v1/predictions", b'{"ids": ["a"], "ids": ["b"]}', 400, TWICE),
        ("/v1/predictions", rb'{"ids": ["a"], "\u0069ds": ["b"]}', 400, TWICE),
        ("/v1/predictions", rb'{"ids": ["a\":b"], "ids"  : ["c:d"]}', 400, TWICE),
        ("/v1/upsert", b'{"rows": [{"id": "n", "p": 1, "q": 2, "p": 3}]}', 400, TWICE),
        ("/v1/compact", b'{"now": true, "now": false}', 400, TWICE),
    ],
)
def test_what_is_refused_has_its_status(
    lasting, path, body, status, said
):  # and changes nothing, which ``lasting`` looks after
    sent = {"content": body, "headers": JSON} if isinstance(body, bytes) else {"json": body}
    refused(lasting.get(path) if body is None else lasting.post(path, **sent), status, said)


@pytest.mark.parametrize(
    ("content", "headers", "status", "said"),
    [
        (b"{", JSON, 422, "body: invalid JSON"),
        (b"\xff\xfe", JSON, 422, "body: "),
        (DEEP.encode(), JSON, 422, "body: "),
        (b'{"nodes": ["\\ud800"], "features": [[1, 1]]}', JSON, 422, "body: "),
        (b'{"nodes": ["n"], "features": [[NaN, 1]]}', JSON, 422, "features[0][0]: "),
        (b'{"nodes": ["n"], "features": [[1e999, 1]]}', JSON, 422, "features[0][0]: "),
        (json.dumps(NEW).encode(), {"Content-Type": "text/plain"}, 415, "not 'text/plain'"),
        (json.dumps(NEW).encode(), {}, 415, "content-type must be application/json or "),
        (b"nonsense", {"Content-Type": ARROW}, 422, "not an Arrow IPC stream"),
        (b"", {"Content-Type": ARROW}, 422, "a delta must add, change or remove"),
        (json.dumps(NEW).encode(), JSON | {"Idempotency-Key": "k" * 201}, 422, "1 to 200"),
        (json.dumps(NEW).encode(), JSON | {"Idempotency-Key": "a b"}, 422, "not 'a b'"),
        (json.dumps(NEW | {"key": "a"}).encode(), JSON | {"Idempotency-Key": "b"}, 422, "key must"),
    ],
)
def test_bad_bytes_and_headers(lasting, content, headers, status, said):
    refused(lasting.post("/v1/deltas", content=content, headers=headers), status, said)


def test_nothing_is_predicted_before_anything_is_learned(serve):
    empty = serve()
    refused(empty.post("/v1/predictions", json={"ids": ["a"]}), 404, "'a'")
    empty.post("/v1/deltas", json=NEW)
    refused(empty.post("/v1/predictions", json={"ids": ["n"]}), 409, "nothing is labelled yet")
    refused(empty.get("/v1/nodes/n"), 409, "nothing is labelled yet")


def test_large_bodies_are_refused(serve, first):
    service = serve(json=1000, nodes=3)
    assert service.post("/v1/deltas", json=first | {"key": "k" * 100}).status_code == 413
    said = "a JSON body must have at most 1000 bytes"
    untold = (b" " * 600 for _ in range(2))  # its length is not told
    refused(service.post("/v1/deltas", content=untold, headers=JSON), 413, said)
    declared = JSON | {"Content-Length": str(100_000_000)}
    refused(
        service.post("/v1/deltas", content=b"{}", headers=declared), 413, f"{said}, not 100000000"
    )
    four = {"nodes": [1, 2, 3, 4], "features": [[1.0]] * 4}
    refused(service.post("/v1/deltas", json=four), 413, "at most 3 nodes, not 4")
    refused(service.post("/v1/predictions", json={"ids": [1] * 4}), 413, "at most 3 nodes, not 4")
    assert service.get("/v1/status").json()["seq"] == 0


def test_tokens(serve, first):
    service = serve(tokens=Tokens((("read", READ), ("write", WRITE))))
    read, write = ({"Authorization": f"Bearer {token}"} for token in (READ, WRITE))
    refused(service.post("/v1/deltas", json=first), 401, "a token is needed")
    wrong = {"Authorization": f"Bearer {READ}x"}
    answer = service.post("/v1/deltas", json=first, headers=wrong)
    refused(answer, 401, "not valid for this service")
    assert answer.headers["www-authenticate"] == "Bearer"
    refused(service.post("/v1/deltas", json=first, headers=read), 403, "may read")
    for path in ("/v1/labels", "/v1/forget"):
        refused(service.post(path, json={}, headers=read), 403, "may read")
    assert service.get("/v1/status", headers=read).json()["seq"] == 0
    assert service.post("/v1/deltas", json=first, headers=write).status_code == 200
    for headers in (read, write):
        asked = service.post("/v1/predictions", json={"ids": ["a"]}, headers=headers)
        assert asked.status_code == 200
    for path in ("/v1/status", "/v1/history", "/v1/nodes/a", "/metrics"):
        refused(service.get(path), 401, "a token is needed")
        assert service.get(path, headers=read).status_code == 200
    for path in ("/", "/page.js", "/healthz", "/docs", "/openapi.json"):
        assert service.get(path).status_code == 200
    refused(service.get("/v1/status", headers={"Authorization": f"Basic {READ}"}), 401, "a token")


def test_without_tokens_other_names_of_this_machine_are_refused(lasting):
    answer = lasting.get("/v1/status", headers={"Host": "evil.example"})
    refused(answer, 403, "answers to localhost, not to 'evil.example'")
    assert lasting.get("/v1/status", headers={"Host": "localhost:9"}).status_code == 200


def test_too_many_requests(serve):
    service = serve(rate=0.01, burst=3)
    assert [service.get("/v1/status").status_code for _ in range(3)] == [200] * 3
    answer = service.get("/v1/status")
    refused(answer, 429, "at most 0.01 a second")
    assert 90 <= int(answer.headers["retry-after"]) <= 100
    assert service.get("/healthz").status_code == 200


def test_refused_tokens_are_written_down_and_who_guesses_is_slowed(serve, caplog):
    service = serve(tokens=Tokens((("read", READ),)), guesses=0.001)
    guessed = "guessed-" + "g" * 20
    with caplog.at_level(logging.WARNING, logger="evergraph.audit"):
        told = [
            service.get("/v1/status", headers={"Authorization": f"Bearer {guessed}"}).status_code
            for _ in range(3)
        ]
        # Guesses do not use up the rate of who holds a token.
        good = {"Authorization": f"Bearer {READ}"}
        assert service.get("/v1/status", headers=good).status_code == 200
        assert service.post("/v1/forget", json={"ids": ["a"]}, headers=good).status_code == 403
    assert told == [401, 429, 429]
    lines = [record for record in caplog.records if record.name == "evergraph.audit"]
    assert len(lines) == 4  # one of them for what a token may not do
    assert lines[0].facts["address"] == "testclient"
    assert lines[0].facts["reason"] == "unknown token"
    assert not any(guessed[8:] in record.getMessage() for record in lines)


def test_nobody_is_sent_to_another_host(lasting):
    for path in ("/v1/status/", "/v1/keys/", "/healthz/"):
        answer = lasting.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
        refused(answer, 404, "there is nothing at ")
        assert "location" not in answer.headers
    two = [("Host", "localhost"), ("Host", "evil.example")]
    refused(lasting.get("/v1/status", headers=two), 400, "one Host, not 2")


def test_a_full_queue_and_a_late_turn_are_503_and_change_nothing(serve, monkeypatch):
    service = serve(queue=1)
    begun, gate, take = Event(), Event(), service.folder.waiting._take
    answers, patience = {}, []

    @contextmanager
    def noted(seconds):
        with fail_after(seconds) as scope:
            patience.append(scope)
            yield scope

    def run_out():
        for scope in patience:
            scope.deadline = anyio.current_time()

    fail_after = anyio.fail_after
    monkeypatch.setattr(anyio, "fail_after", noted)

    def slow(waiting):
        begun.set()
        assert gate.wait(20)
        take(waiting)

    monkeypatch.setattr(service.folder.waiting, "_take", slow)

    def send(name):
        body = {"nodes": [name], "features": [[1.0]], "key": name}
        answers[name] = service.post("/v1/deltas", json=body)

    threads = [Thread(target=send, args=(name,)) for name in ("running", "waiting")]
    threads[0].start()
    assert begun.wait(20)
    threads[1].start()
    until(lambda: service.get("/v1/status").json()["waiting"])
    send("third")
    service.portal.call(run_out)
    for thread in threads:
        thread.join()
    gate.set()
    refused(answers["third"], 503, "1 changes are waiting already")
    refused(answers["waiting"], 503, "and nothing was changed")
    refused(answers["running"], 503, "still running: send it again with the same key")
    assert all("retry-after" in answer.headers for answer in answers.values())
    until(lambda: not service.get("/v1/status").json()["waiting"])  # dropped at its turn
    send("running")
    assert answers["running"].json() == {
        "seq": 1,
        "new_nodes": 1,
        "classes": 0,
        "recomputed": 1,
        "predicted": 0,
        "right": 0,
        "counted": 0,
    }
    assert service.get("/v1/status").json()["nodes"] == 1


def refused(answer: Any, status: int, said: str) -> None:
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    sentence = answer.json()["error"]
    assert said in sentence
    assert "\n" not in sentence
    assert 0 < len(sentence) <= 600


def test_more_new_classes_than_a_change_may_bring_are_413_and_a_colon_is_no_key(client):
    client.folder.learner.bounds = Bounds(classes=2)
    many = {"nodes": [10, 11, 12], "features": [[1.0, 0.0]] * 3, "labels": ["p", "q", "r"]}
    answer = client.post("/v1/deltas", json=many)
    refused(answer, 413, "not 3: was a column of ids sent as labels?")
    assert client.get("/v1/status").json()["seq"] == 1
    assert client.post("/v1/deltas", json=many | {"labels": ["p", "q", "x"]}).status_code == 200
    odd = {"nodes": ['a":"a', "b\\"], "features": [[1, 0], [0, 1]], "labels": ["p:q", None]}
    assert client.post("/v1/deltas", json=odd).status_code == 200
    asked = client.post("/v1/predictions", json={"ids": ['a":"a', "b\\"]})
    assert asked.status_code == 200


def test_a_request_for_which_no_memory_is_left_may_come_again():
    told = failure(MemoryError(), {"method": "POST", "path": "/v1/deltas"})
    assert (told.status_code, told.headers["retry-after"]) == (503, "5")
    assert b"no memory left" in told.body


@pytest.mark.parametrize("refused_by", ["reader", "learner", "upsert"])
def test_nothing_of_a_refused_body_is_held_until_the_garbage_collector_looks(
    client, monkeypatch, refused_by
):
    held, read = [], DeltaReader.read

    def watched(self, *args, **given):
        delta = read(self, *args, **given)
        held.append(weakref.ref(delta.features))
        if refused_by == "reader":
            raise RefusedError(422, "no")
        return delta

    monkeypatch.setattr(DeltaReader, "read", watched)
    path = "/v1/upsert" if refused_by == "upsert" else "/v1/deltas"
    client.get("/healthz")
    gc.collect()
    gc.disable()
    try:
        wrong = {"nodes": ["n"], "features": [[1.0, 0.0, 1.0]]}
        assert client.post(path, json=wrong).status_code == 422
        until(lambda: held[0]() is None)  # the writer's thread may still be about to
    finally:
        gc.enable()
