"""Large bodies are read by another process, and say the same there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from evergraph.core.errors import EvergraphError
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.online.delta import Delta
from evergraph.server import bodies
from evergraph.server.arrow import arrow_from_delta
from evergraph.server.bodies import DELTAS, read_delta, read_question
from evergraph.server.http import ARROW, JSON, status_of
from evergraph.server.large_bodies import BodyParser
from evergraph.server.payloads import DeltaBody, PredictionsBody
from waiting import until

MOST = 12


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[BodyParser]:
    """Reads every body in another process."""
    parsing = BodyParser(most=MOST, seconds=60.0, large=0)
    yield parsing
    parsing.close()


def outcome(read: Any, *given: Any, **more: Any) -> Any:
    """Return what a body says, in a form that can be compared, or how it is refused."""
    try:
        found = read(*given, **more)
    except EvergraphError as error:
        return status_of(error), str(error)
    if not hasattr(found, "delta"):
        return list(found.ids), found.every_class
    return delta_to_bytes(found.delta), [dict(row) for row in found.rows]


def same(elsewhere: BodyParser, body: bytes, model: str = "delta", kind: str = JSON) -> Any:
    """Check that a body says the same in both processes, and return what it says."""
    here = outcome(read_delta, body, model=model, kind=kind, most=MOST)
    assert outcome(elsewhere.delta, body, model=model, kind=kind) == here
    return here


IDS = st.sampled_from(["a", "b", "ü", 1, -7, 2**63 - 1])
WRONG = st.sampled_from([None, 1.5, True, "", "x" * 1025, 2**63, [], {}, "\0"])
LABELS = st.one_of(IDS, st.none(), st.floats(-1e3, 1e3), st.lists(IDS, max_size=2))
NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-9, 9))
PARTS = {
    "nodes": st.lists(st.one_of(IDS, IDS, WRONG), max_size=4),
    "features": st.lists(st.lists(NUMBERS, min_size=2, max_size=2), max_size=3),
    "labels": st.lists(LABELS, max_size=3),
    "edges": st.lists(st.tuples(IDS, st.one_of(IDS, IDS, WRONG)), max_size=3),
    "weights": st.lists(NUMBERS, max_size=3),
    "late": st.lists(st.tuples(IDS, LABELS), max_size=3),
    "forgotten": st.lists(IDS, max_size=14),
    "rows": st.lists(st.fixed_dictionaries({"id": IDS, "age": NUMBERS}), max_size=3),
    "key": st.one_of(st.none(), st.just("k"), WRONG),
    "other": WRONG,
}


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.fixed_dictionaries({}, optional=PARTS), st.sampled_from(sorted(DELTAS)), st.booleans())
def test_a_body_says_the_same_wherever_it_is_read(
    elsewhere: BodyParser, said: dict[str, Any], model: str, cut: bool
) -> None:
    body = json.dumps(said).encode()
    same(elsewhere, body[:-1] if cut else body, model)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[1]",
        b'{"ids": ["a", 1, 9223372036854775807], "all": true}',
        b'{"ids": [1.5]}',
        b'{"ids": ["a"], "all": 1}',
        json.dumps({"ids": list(range(MOST + 1))}).encode(),
    ],
)
def test_a_question_is_the_same_wherever_it_is_read(elsewhere: BodyParser, body: bytes) -> None:
    here = outcome(read_question, body, most=MOST)
    assert outcome(elsewhere.question, body) == here


def test_tables_are_the_same_wherever_they_are_read(elsewhere: BodyParser) -> None:
    delta = Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", None), edges=(("a", "b"),))
    assert same(elsewhere, arrow_from_delta(delta), kind=ARROW)[0] == delta_to_bytes(delta)
    assert same(elsewhere, b"no table", kind=ARROW)[0] == 422


def test_of_many_mistakes_one_is_found() -> None:
    wrong = json.dumps({"nodes": [1.5] * 500, "features": [["x"] * 500]}).encode()
    with pytest.raises(ValidationError) as caught:
        DeltaBody.model_validate_json(wrong)
    assert caught.value.error_count() <= 3  # both kinds of an id, and a number
    with pytest.raises(ValidationError) as caught:
        PredictionsBody.model_validate_json(b'{"ids": [1.5, 1.5, 1.5]}')
    assert caught.value.error_count() <= 2


def test_large_bodies_are_not_read_here(
    serve: Any, elsewhere: BodyParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: TestClient = serve()
    asked: list[int] = []

    said = elsewhere._said

    def ask(_: BodyParser, body: bytes, *given: str) -> list[bytes]:
        asked.append(len(body))
        return said(body, *given)

    monkeypatch.setattr(BodyParser, "_said", ask)
    monkeypatch.setattr(bodies, "parse", lambda *_: pytest.fail("it is read here"))
    monkeypatch.setattr(bodies, "quick_delta", lambda *_, **__: pytest.fail("it is read here"))
    wrong = json.dumps({"nodes": [1.5] * 80_000}).encode()
    answer = client.post("/v1/deltas", content=wrong, headers={"Content-Type": JSON})
    assert (answer.status_code, asked) == (422, [len(wrong)])
    assert answer.json()["error"].startswith("nodes[0]: must be a string of 1 to 1024 characters")
    many = json.dumps({"ids": ["nobody"] * 40_000}).encode()
    answer = client.post("/v1/predictions", content=many, headers={"Content-Type": JSON})
    assert (answer.status_code, asked[1:]) == (413, [len(many)])


def test_one_that_takes_too_long_is_ended() -> None:
    slow = BodyParser(most=MOST, seconds=0.05, large=0)
    assert outcome(slow.question, b"{}") == (503, "reading the body took longer than 0.05 s")
    assert slow._pool is None
    slow.close()


def test_one_that_was_killed_is_started_again(elsewhere: BodyParser) -> None:
    assert elsewhere.question(b'{"ids": ["a"]}').ids == ["a"]
    os.kill(elsewhere._pid, signal.SIGKILL)
    assert outcome(elsewhere.question, b'{"ids": ["a"]}')[0] == 413  # as where memory is short
    assert elsewhere.question(b'{"ids": ["a"]}').ids == ["a"]


def test_one_that_has_nothing_to_do_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = BodyParser(most=MOST, seconds=60.0, large=0, idle=0.1)
    assert parser.question(b'{"ids": []}').ids == []
    process = psutil.Process(parser._pid)
    until(lambda: parser._pool is None)
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    parser.close()
