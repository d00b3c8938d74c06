"""Requests from a grammar, for every route and both encodings: no 500, and no trace of refusals."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random, SystemRandom
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

pytest.importorskip("pyarrow", reason="pyarrow is not installed: half of what is sent is Arrow")

from evergraph.core.errors import EvergraphError
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.http import ARROW
from evergraph.server.limits import Limits
from request_grammar import SOUND, Asked, Grammar

COUNT = 320
LOOKED_AT = 8  # after every so many questions it is looked whether something has changed
Make = Callable[..., FastAPI]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, learner: Callable[[], Any]) -> FastAPI:
    """A service that nobody waits long for."""
    folder = LearnerFolder.open(tmp_path_factory.mktemp("grammar") / "learner", make=learner)
    limits = Limits(rate=1e6, burst=10**6, patience=0.01, seconds=20.0)
    return create_app(folder, limits=limits)


@pytest.fixture(scope="module")
def service(app: FastAPI, first: dict[str, Any]) -> Iterator[TestClient]:
    """The same, asked in this process; what would be a 500 is raised."""
    with TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False) as client:
        assert client.post("/v1/deltas", json=first).status_code == 200
        yield client


class Judge:
    """Sends requests, and holds every answer against the rules."""

    def __init__(self, service: TestClient, fingerprint: Callable[..., str], seed: int) -> None:
        self.service, self.fingerprint = service, fingerprint
        self.grammar = Grammar(service.get("/openapi.json").json(), seed)
        self.wrong: list[str] = []
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.known = fingerprint(service)

    def judge(self, number: int) -> None:
        """Send one request; note which rule its answer breaks, if it does."""
        asked = self.grammar.request(number)
        try:
            headers = [(n.encode(), v.encode("latin-1", "replace")) for n, v in asked.headers]
            answer = self.service.request(
                asked.method, asked.url, content=asked.body, headers=headers
            )
        except EvergraphError as error:
            self.note(asked, f"an error came through: {error!r}")
            return
        except Exception as error:
            self.note(asked, f"would be a 500: {type(error).__name__}: {error}")
            return
        encoding = "Arrow" if ("Content-Type", ARROW) in asked.headers else "JSON"
        self.answers[asked.route, encoding, answer.status_code] += 1
        if broken := self.broken(asked, answer):
            self.note(asked, broken)

    def broken(self, asked: Asked, answer: Any) -> str | None:
        """Return which rule an answer breaks."""
        status = answer.status_code
        if status >= 500 and status not in (503, 507):
            return f"{status}: {answer.text[:200]}"
        changed = False
        if asked.method != "GET" or sum(self.answers.values()) % LOOKED_AT == 0:
            now = self.fingerprint(self.service)
            changed, self.known = now != self.known, now
        if status < 400:
            return "a question changed something" if changed and asked.method == "GET" else None
        if changed:
            return f"refused with {status}, and yet something has changed"
        if asked.method in ("HEAD", "OPTIONS") or not answer.content:
            return None
        return self.unlike_a_sentence(answer)

    def unlike_a_sentence(self, answer: Any) -> str | None:
        """Return what is wrong with how a refusal is said."""
        try:
            said = answer.json()
        except ValueError:
            return f"{answer.status_code} is no JSON: {answer.text[:200]}"
        if list(said) != ["error"] or not isinstance(said["error"], str):
            return f"{answer.status_code} must be {{'error': ...}}, not {answer.text[:200]}"
        text = said["error"]
        if not text.strip() or "\n" in text or len(text) > 2_500 or "Traceback" in text:
            return f"{answer.status_code} is no sentence: {text[:300]!r}"
        return None

    def note(self, asked: Asked, what: str) -> None:
        body = b"" if asked.body is None else asked.body[:150]
        self.wrong.append(f"{asked.kind} {asked.method} {asked.url[:120]} {asked.headers} {body!r}"
                          f"\n    {what}")  # fmt: skip


def judged(service: TestClient, fingerprint: Callable[..., str], seed: int, count: int) -> Judge:
    judge = Judge(service, fingerprint, seed)
    for number in range(count):
        judge.judge(number)
    assert not judge.wrong, f"{len(judge.wrong)} with seed {seed}:\n" + "\n".join(judge.wrong[:20])
    assert service.get("/healthz").status_code == 200
    return judge


def test_three_hundred_requests(service: TestClient, fingerprint: Callable[..., str]) -> None:
    judge = judged(service, fingerprint, 1, COUNT)
    routes = {route for route, _, _ in judge.answers}
    assert len(routes) == len(judge.grammar.operations)
    taken = {(route, encoding) for route, encoding, status in judge.answers if status == 200}
    assert taken >= {("POST /v1/deltas", "JSON"), ("POST /v1/deltas", "Arrow"),
                     ("POST /v1/upsert", "JSON"), ("POST /v1/upsert", "Arrow")}  # fmt: skip
    statuses = {status for _, _, status in judge.answers}
    assert statuses >= {200, 404, 405, 415, 422}  # it is refused in all kinds of ways


def test_sound_requests_are_sound(service: TestClient) -> None:
    """What is not spoiled is answered, or refused for what is not there or is there already."""
    grammar = Grammar(service.get("/openapi.json").json(), 2)
    drawn = (grammar.request(number) for number in range(COUNT))
    sound = [one for one in drawn if one.kind == SOUND and grammar.understands(one)]
    assert len(sound) > COUNT / 8
    found = Counter[int]()
    for asked in sound:
        headers = dict(asked.headers)
        answer = service.request(asked.method, asked.url, content=asked.body, headers=headers)
        moved = "nodes have other places" in answer.text  # ids, after a folder was compacted
        assert moved or answer.status_code in (200, 404, 409, 413, 503), (asked, answer.text)
        found[answer.status_code] += 1
    assert found[200] > len(sound) / 2


HEADS = (
    b"GET /v1/status HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\n\r\n",
    b"GET http://elsewhere.example/v1/status HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/status HTTP/9.9\r\nHost: a\r\n\r\n",
    b"GET /v1/st atus HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    b"GET /v1/status?" + b"a=1&" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /v1/deltas HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}   ",
    b"POST /v1/deltas HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"POST /v1/deltas HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    b"POST /v1/predictions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nf\r\n{\"ids\": [\"a\"]}\n\r\n0\r\n\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
)  # fmt: skip


def told(port: int, sent: bytes) -> bytes:
    """Return the beginning of what comes back, nothing where the other side hangs up or waits."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        try:
            connection.sendall(sent)
            connection.settimeout(0.3)
            return connection.recv(4096)
        except OSError:
            return b""


def test_heads_that_are_none(
    live: Callable[[FastAPI], str], learner: Any, tmp_path: Any, first: dict[str, Any]
) -> None:
    import httpx

    folder = LearnerFolder.open(tmp_path / "learner", make=learner)
    folder_seq = folder.seq
    url = live(create_app(folder, limits=Limits(seconds=2.0)))
    port, draw = int(url.rsplit(":", 1)[1]), Random(1)
    for head in HEADS:
        spoiled = bytearray(head)
        spoiled[draw.randrange(min(len(spoiled), 60))] ^= 1 << draw.randrange(8)
        for sent in (head, bytes(spoiled)):
            answer = told(port, sent)
            assert not answer.startswith(b"HTTP/1.1 5") or answer[9:12] == b"503", (
                sent[:80],
                answer,
            )
    assert folder.seq == folder_seq
    assert httpx.get(f"{url}/healthz").status_code == 200
    assert httpx.post(f"{url}/v1/deltas", json=first).status_code == 200


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_thousand_requests(service: TestClient, fingerprint: Callable[..., str]) -> None:
    judged(service, fingerprint, SystemRandom().randrange(10**6), 20_000)
