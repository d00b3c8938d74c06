"""Lines of the log, each with the id of its request; clients are told of no place on the disk."""

import io
import json
import logging
import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fastapi.testclient import TestClient

from evergraph.core.errors import ConfigurationError, DataError, ResourceError, StoppedError
from evergraph.server.app import create_app
from evergraph.server.http import REQUEST_ID, without_paths
from evergraph.server.observability import (
    JsonLines,
    TextLines,
    ThreadedHandler,
    WarningLimit,
    log_to_stderr,
)
from evergraph.server.running import bind, listen
from evergraph.server.startup import Starting
from forked import begun, in_a_child

NAMED = {"X-Request-Id": "proxy-7"}


@pytest.fixture
def lines() -> Iterator[Any]:
    """Return what gives the lines of the log so far, as objects."""
    stream, log = io.StringIO(), logging.getLogger("evergraph")
    handler, before = logging.StreamHandler(stream), log.level
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    log.removeHandler(handler)
    log.setLevel(before)


def test_every_answer_has_an_id(lasting):
    assert lasting.get("/healthz", headers=NAMED).headers.get_list("x-request-id") == ["proxy-7"]
    made = {lasting.get("/healthz").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    for bad in (b"x" * 65, b"two words", b"\xc3\xa5", b""):
        answer = lasting.get("/healthz", headers={"X-Request-Id": bad})
        assert answer.headers["x-request-id"].encode() not in (bad, b"")
    answer = lasting.post("/v1/predictions", json={"ids": ["a"]}, headers=NAMED)
    assert answer.headers["x-request-id"] == "proxy-7"
    assert lasting.get("/nowhere", headers=NAMED).headers["x-request-id"] == "proxy-7"


def test_a_change_is_one_line_that_says_what_and_who(serve, first, lines):
    client = serve()
    client.post("/v1/deltas", json=first, headers=NAMED)
    client.post("/v1/labels", json={"labels": [["c", "x"]]})
    client.post("/v1/forget", json={"ids": ["b"], "key": "gone"})
    client.post("/v1/upsert", json={"nodes": ["d"], "features": [[1.0, 1.0]]})
    told = [line for line in lines() if line["logger"] == "evergraph.audit"]
    assert [line["event"] for line in told] == ["change"] * 4
    assert told[0]["request_id"] == "proxy-7"
    assert all(line["request_id"] for line in told)
    facts = [line["facts"] for line in told]
    assert facts[0].pop("seconds") > 0
    assert facts[0] == {
        "route": "/v1/deltas",
        "seq": 1,
        "key": "first",
        "nodes": 6,
        "edges": 3,
        "labels": 4,
        "address": "testclient",
    }
    assert [one["seq"] for one in facts] == [1, 2, 3, 4]
    assert [one["key"] for one in facts] == ["first", None, "gone", None]
    assert (facts[1]["labels"], facts[2]["forgotten"], facts[3]["nodes"]) == (1, 1, 1)
    assert client.post("/v1/forget", json={"ids": ["nobody"]}).status_code == 404
    assert len([line for line in lines() if line["logger"] == "evergraph.audit"]) == 4


def test_what_fails_is_logged_with_the_id(lasting, lines, monkeypatch):
    def stopped(waiting):
        for each in waiting:
            each.refuse(StoppedError("the disk failed"))

    monkeypatch.setattr(lasting.folder.waiting, "_take", stopped)
    assert lasting.post("/v1/forget", json={"ids": ["a"]}, headers=NAMED).status_code == 503
    (line,) = (line for line in lines() if line["level"] == "WARNING")
    assert line["request_id"] == "proxy-7"
    assert line["message"] == "POST /v1/forget answered 503: the disk failed"
    monkeypatch.setattr(type(lasting.folder.learner.frozen()), "ids_from", None)
    answer = lasting.get("/v1/ids", headers=NAMED)
    assert answer.status_code == 500
    assert answer.json()["error"].endswith("the log has details under reference proxy-7")
    assert "TypeError" not in answer.text
    assert "TypeError" in next(line for line in lines() if line["level"] == "ERROR")["exception"]


def test_an_access_log_is_written_where_it_is_asked_for(serve, lines, tmp_path, learner):
    from evergraph.online.folder.learner_folder import LearnerFolder

    serve().get("/healthz")
    assert not [line for line in lines() if line["logger"] == "evergraph.access"]
    folder = LearnerFolder.open(tmp_path / "other", make=learner)
    with TestClient(create_app(folder, access_log=True), base_url="http://127.0.0.1") as client:
        client.get("/v1/nodes/a%0Ab?integer=true", headers=NAMED)
    (line,) = (line for line in lines() if line["logger"] == "evergraph.access")
    assert line["facts"]["status"] == 422
    assert (line["facts"]["path"], line["request_id"]) == ("/v1/nodes/a\nb", "proxy-7")


def test_text_stays_on_one_line_and_names_the_request():
    record = logging.LogRecord("x", logging.INFO, "", 0, "sent %r\nfake", ("a\nb",), None)
    context = REQUEST_ID.set("id-1")
    try:
        told = TextLines().format(record)
    finally:
        REQUEST_ID.reset(context)
    assert told.endswith(" INFO x [id-1]: sent 'a\\nb'\\nfake")
    assert (told[10], told[19], told[23]) == ("T", ".", "Z")
    said = "unknown log format 'jsno': did you mean 'json'"
    with pytest.raises(ConfigurationError, match=said), log_to_stderr("jsno"):
        pass


def test_warnings_of_one_kind_do_not_fill_the_disk():
    sparing = WarningLimit(most=3)

    def passes(level, msg, created):
        record = logging.LogRecord("evergraph.audit", level, "", 0, "%s", (msg,), None)
        record.created, record.event = created, msg.split()[0]
        return record.getMessage() if sparing.filter(record) else ""

    many = [passes(logging.WARNING, f"refused {n}", 5.0) for n in range(100)]
    assert many == ["refused 0", "refused 1", "refused 2", *[""] * 97]
    assert passes(logging.WARNING, "other 1", 5.5)
    assert all(passes(logging.INFO, "change 1", 5.5) for _ in range(100))  # every change
    told = passes(logging.WARNING, "refused 1", 6.0)
    assert told == "refused 1 (97 more like it were left out)"


def test_a_pipe_that_nobody_empties_holds_up_nobody():
    read, write = os.pipe()
    handler = ThreadedHandler(open(write, "w"), queue_size=100)  # noqa: SIM115, PTH123
    for number in range(2000):  # more than the pipe holds, and the queue: else it would not end
        handler.handle(logging.LogRecord("x", 20, "", 0, f"{number} {'.' * 100}", (), None))
    told = b""
    while b"lines of the log were lost: nobody read them in time" not in told:
        told += os.read(read, 1 << 16)
    assert told.startswith(b"0 ..")
    os.close(read)


def test_a_process_ends_though_nobody_reads_its_log():
    def write():
        with log_to_stderr("text"):
            for _ in range(5000):
                logging.getLogger("evergraph.audit").info("x" * 100)

    read, unread = os.pipe()
    child = begun(write, err=unread)
    os.close(unread)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 2) == b"20"
    os.close(read)


def test_the_servers_own_errors_are_lines_like_any_other(monkeypatch):
    async def fail(*_):
        raise ValueError("on purpose")

    def make(progress):
        with socket.create_connection(("127.0.0.1", bound.getsockname()[1])) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            line.recv(1000)
        raise SystemExit

    def serve():
        with log_to_stderr("json"):
            listen(Starting(make), bound)

    bound = bind("127.0.0.1", 0)
    monkeypatch.setattr(Starting, "_answer", fail)
    told = [json.loads(line) for line in in_a_child(serve).err.splitlines()]
    assert [(line["logger"], line["level"]) for line in told] == [("uvicorn.error", "ERROR")]
    assert "ValueError: on purpose" in told[0]["exception"]


LABELS = {"labels": [["c", "x"]]}


def raising(error: Exception) -> Mock:
    return Mock(side_effect=error)


@pytest.mark.parametrize("kind", [StoppedError, DataError])
def test_a_refusal_names_files_by_their_names(lasting, monkeypatch, caplog, kind):
    folder = lasting.folder
    error = kind(f"{folder.path / 'journal.sqlite'}: the disk is full")
    monkeypatch.setattr(folder.waiting, "_take", lambda all_: [each.refuse(error) for each in all_])
    monkeypatch.setattr(folder, "upsert", raising(error))
    for path, body in (("/v1/labels", LABELS), ("/v1/upsert", {"forgotten": ["a"]})):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            answer = lasting.post(path, json=body)
        assert answer.status_code in (422, 503)
        assert answer.json() == {"error": "journal.sqlite: the disk is full"}
        assert str(folder.path / "journal.sqlite") in caplog.text


def test_a_delta_that_cannot_be_applied_is_refused_without_paths(client, monkeypatch):
    learner = client.folder.learner
    monkeypatch.setattr(learner, "apply_batch", raising(OSError(27, "File too large", "/var/x/y")))
    answer = client.post("/v1/labels", json=LABELS)
    assert answer.status_code == 507
    assert "File too large" in answer.json()["error"]
    assert str(client.folder.path) not in answer.text
    assert "/var/x" not in answer.text


def test_what_readers_and_the_database_say_is_told_without_paths(lasting, monkeypatch):
    from evergraph.online.folder.sqlite_file import sound

    odd = lasting.post("/v1/predictions", json={"ids": ["/etc/a/b"]})
    assert odd.json() == {"error": "node '/etc/a/b' is not in the graph"}  # no path, but an id
    error = ResourceError(f"{lasting.folder.path}: the disk is full")
    monkeypatch.setattr(lasting.folder.learner.frozen(), "answer", raising(error))
    answer = lasting.post("/v1/predictions", json={"ids": ["a"]})
    assert answer.json() == {"error": "learner: the disk is full"}

    def last(_):
        with sound(lasting.folder.path / "journal.sqlite"):
            raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(lasting.folder, "last_key", last)
    answer = lasting.get("/v1/keys?prefix=a")
    assert answer.json()["error"].startswith("journal.sqlite: cannot be used")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/srv/my data/learner: is closed", "learner: is closed"),
        ("/srv/my data/learner/journal: gone", "journal: gone"),
        ("/tmp/evergraph-1/x.npy: the disk is full", "x.npy: the disk is full"),
        ("[Errno 28] No space left: '/tmp/other/x'", "[Errno 28] No space left: 'x'"),
        ("2 of 3 are right, and/or 1/2", "2 of 3 are right, and/or 1/2"),
    ],
)
def test_paths_become_names(said, told):
    assert without_paths(ResourceError(said), Path("/srv/my data/learner")) == told
