"""Processes that answer beside the one that writes, all of them in this one."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.board import WRITER, Board
from evergraph.server.client import Client
from evergraph.server.limits import Limits
from evergraph.server.listening import bind
from evergraph.server.metrics import Metrics
from evergraph.server.place import BOARD, SOCKET, Place
from evergraph.server.tokens import Tokens

READ, WRITE = "r" * 20, "w" * 20
NODES = ["a", "b", "c", 1, 2, 3]


@pytest.fixture
def listening() -> Iterator[Callable[..., str]]:
    """Return what has an application listen at a free port, and at another socket if given."""
    with ExitStack() as servers:

        def begin(app: FastAPI, *others: socket.socket) -> str:
            bound = bind("127.0.0.1", 0)
            bound.listen()
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
            thread = Thread(target=server.run, kwargs={"sockets": [bound, *others]})
            thread.start()
            servers.callback(thread.join)
            servers.callback(setattr, server, "should_exit", True)
            return f"http://127.0.0.1:{bound.getsockname()[1]}"

        yield begin


@pytest.fixture
def pair(tmp_path: Path, learner: Any, listening: Any) -> Callable[..., tuple[str, str]]:
    """Return what begins a writer and a replica of one folder, and where they are."""

    def begin(tokens: Tokens | None = None, **limits: Any) -> tuple[str, str]:
        bounds = Limits(rate=1e6, burst=10**6, **limits)
        private = tmp_path / "private"
        private.mkdir()
        places = Place(private, WRITER, Board(private / BOARD, processes=2)), Place.at(private, 1)
        file = socket.socket(socket.AF_UNIX)
        file.bind(str(private / SOCKET))
        file.listen()
        kept = LearnerFolder.open(tmp_path / "learner", make=learner)
        writer = create_app(kept, tokens=tokens, limits=bounds, place=places[0])
        first = listening(writer, file)
        read = LearnerFolder.open(tmp_path / "learner", make=learner, readonly=True)
        replica = create_app(read, tokens=tokens, limits=bounds, place=places[1])
        return first, listening(replica)

    return begin


def ask(url: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    kind = {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), kind | headers)
    answer = connection.getresponse()
    told = answer.read()
    connection.close()
    return answer.status, told.decode() if path == "/metrics" else json.loads(told)


def test_a_write_through_a_replica_is_acknowledged_and_read_back(
    pair: Any, first: Any, tmp_path: Path, learner: Any
) -> None:
    writer, replica = pair()
    status, done = ask(replica, "POST", "/v1/deltas", first)
    assert (status, done["seq"], done["new_nodes"]) == (200, 1, 6)
    assert ask(replica, "POST", "/v1/deltas", first) == (status, done)  # the same key
    asked = {"ids": NODES, "all": True}
    told = ask(replica, "POST", "/v1/predictions?after=1", asked)
    assert told == ask(writer, "POST", "/v1/predictions", asked)
    assert Client(replica).predict(["a"], after=1)[0]["label"] == "x"
    assert ask(replica, "POST", "/v1/deltas", first | {"key": "other"})[0] == 409
    assert ask(replica, "GET", "/v1/keys?prefix=f") == (200, {"key": "first"})
    with LearnerFolder.open(tmp_path / "learner", make=learner, readonly=True) as kept:
        assert kept.learner.status().nodes == 6
    told = ask(replica, "GET", "/v1/status")[1]["replicas"]
    assert [(one["role"], one["seq"], one["lag"], one["alive"]) for one in told] == [
        ("writer", 1, 0, True),
        ("replica", 1, 0, True),
    ]
    time.sleep(1.1)  # counts of a replica are noted every second
    lines = ask(writer, "GET", "/metrics")[1].splitlines()
    assert 'evergraph_process_lag{process="1",role="replica"} 0.0' in lines
    assert 'evergraph_requests_total{route="/v1/deltas",status="200"} 2' in lines
    assert 'evergraph_requests_total{route="/v1/deltas",status="409"} 1' in lines
    assert 'evergraph_requests_total{route="/v1/predictions",status="200"} 3' in lines


def test_who_must_know_a_delta_waits_for_it(pair: Any, first: Any) -> None:
    writer, replica = pair(patience=5.0)
    ask(writer, "POST", "/v1/deltas", first)
    told: list[Any] = []

    def wait() -> None:
        told.append(ask(replica, "POST", "/v1/predictions?after=2", {"ids": ["new"]}))

    waiting = Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    assert not told
    ask(writer, "POST", "/v1/deltas", {"nodes": ["new"], "features": [[1.0, 0.0]]})
    waiting.join()
    assert told[0][0] == 200
    assert told[0][1]["seq"] == 2


def test_a_delta_that_does_not_come_is_refused_in_a_sentence(pair: Any) -> None:
    _, replica = pair(patience=0.05)
    refused = (503, {"error": "delta 9 has not come within 0.05 s, only 0"})
    assert ask(replica, "POST", "/v1/predictions?after=9", {"ids": ["a"]}) == refused
    assert ask(replica, "GET", "/v1/nodes/a?after=9") == refused
    status, told = ask(replica, "POST", "/v1/predictions?after=soon", {"ids": ["a"]})
    assert (status, told) == (422, {"error": "after must be the seq of a delta, not 'soon'"})


def test_tokens_and_limits_hold_in_a_replica(pair: Any, first: Any) -> None:
    _, replica = pair(Tokens((("read", READ), ("write", WRITE))), body=2000)
    reader, writer = ({"Authorization": f"Bearer {token}"} for token in (READ, WRITE))
    assert ask(replica, "POST", "/v1/deltas", first)[0] == 401
    assert ask(replica, "POST", "/v1/deltas", first, **reader)[0] == 403
    assert ask(replica, "POST", "/v1/deltas", first, **writer)[0] == 200
    assert ask(replica, "GET", "/v1/journal?after=0", **reader)[0] == 403
    status, told = ask(replica, "POST", "/v1/deltas", {"nodes": ["x" * 3000]}, **writer)
    assert (status, told["error"][:42]) == (413, "the body must have at most 2000 bytes, not")
    assert ask(replica, "POST", "/v1/predictions", {"ids": ["a"]})[0] == 401


def test_a_body_that_comes_in_pieces_is_passed_on_whole(pair: Any, first: Any) -> None:
    _, replica = pair(body=2000)
    for filler, status in ((b"", 200), (b" " * 3000, 413)):
        text = json.dumps(first).encode() + filler
        pieces = (text[start : start + 100] for start in range(0, len(text), 100))
        connection = http.client.HTTPConnection(urlsplit(replica).netloc, timeout=30)
        kind = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/deltas", pieces, kind, encode_chunked=True)
        assert connection.getresponse().status == status
        connection.close()


def test_a_writer_that_does_not_answer_is_said_so(tmp_path: Path, learner: Any, first: Any) -> None:
    LearnerFolder.open(tmp_path / "learner", make=learner).close()
    Board(tmp_path / BOARD, processes=2)
    folder = LearnerFolder.open(tmp_path / "learner", make=learner, readonly=True)
    app = create_app(folder, place=Place.at(tmp_path, 1))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/deltas", json=first)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"].startswith("the process that writes does not answer (")


def test_a_replica_never_answers_from_half_a_delta(pair: Any, learner: Any, tmp_path: Path) -> None:
    """Every answer is that of a learner which was given exactly so many deltas."""
    writer, replica = pair()
    generator, known = torch.Generator().manual_seed(0), learner()
    deltas = [_delta(step, generator) for step in range(12)]
    expected = {}
    for step, delta in enumerate(deltas, 1):
        known.apply(delta)
        expected[step] = known.predict_proba(["0-0", "0-1", "0-2"])[1]
    client, seen = Client(writer), []
    client.submit(deltas[0])
    teaching = Thread(target=lambda: [client.submit(delta) for delta in deltas[1:]])
    teaching.start()
    question = {"ids": ["0-0", "0-1", "0-2"], "all": True}
    while not seen or seen[-1] < 12:
        status, told = ask(replica, "POST", "/v1/predictions?after=1", question)
        assert status == 200, told
        rows = torch.tensor([one["probabilities"] for one in told["predictions"]])
        assert torch.allclose(rows, expected[told["seq"]], atol=1e-5)
        seen.append(told["seq"])
    teaching.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 3  # it was asked in between


def _delta(step: int, generator: torch.Generator) -> Delta:
    """Three nodes that are joined to the first three, so that every delta moves these."""
    nodes = tuple(f"{step}-{place}" for place in range(3))
    edges = [(node, f"0-{place}") for place, node in enumerate(nodes)] if step else []
    features = torch.rand(3, 4, generator=generator)
    return Delta(nodes=nodes, features=features, labels=("x", "y", None), edges=tuple(edges))


def test_counts_of_processes_add_up(tmp_path: Path) -> None:
    one, other = Metrics(), Metrics()
    one.observe("/v1/x", 200, 0.002)
    other.observe("/v1/x", 200, 0.5)
    other.observe("/v1/y", 404, 99.0)
    other.save(tmp_path / "counts")
    lines = one.plus([Metrics.load(tmp_path / "counts")]).text({}).splitlines()
    assert 'evergraph_requests_total{route="/v1/x",status="200"} 2' in lines
    assert 'evergraph_request_seconds_bucket{route="/v1/y",le="+Inf"} 1' in lines
    assert 'evergraph_request_seconds_sum{route="/v1/x"} 0.502000' in lines
    assert Metrics.load(tmp_path / "nothing").text({}) == Metrics().text({})


def test_a_board_tells_how_far_behind_and_for_how_long(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", processes=2)
    assert not board.processes()[1].alive
    board.note(WRITER, 10, 3)
    board.note(1, 11, 3)
    board.note(WRITER, 10, 5)
    time.sleep(0.01)
    told = Board(tmp_path / "board").processes()
    assert (told[0].lag, told[0].seconds) == (0, 0.0)
    assert (told[1].role, told[1].pid, told[1].lag) == ("replica", 11, 2)
    assert told[1].seconds >= 0.01
    board.note(1, 11, 5)
    assert board.processes()[1].seconds == 0.0
