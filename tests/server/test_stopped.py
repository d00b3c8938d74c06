"""A service whose disk fails, and one whose learner cannot apply a delta: said."""

from __future__ import annotations

import signal
import sqlite3
from typing import Any

import pytest

from evergraph.online.folder.journal import Journal
from evergraph.online.learner import OnlineLearner

MORE = {"nodes": ["d"], "features": [[1.0, 0.1]], "labels": ["x"], "key": "more"}


def test_a_broken_disk_is_said_and_ends_the_process(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever supervises it starts it again; what was begun is answered first."""
    ended: list[int] = []
    monkeypatch.setattr("os.kill", lambda process, number: ended.append(number))

    def broken(self: Journal, entries: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", broken)
        answer = client.post("/v1/deltas", json=MORE)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "disk I/O error" in answer.json()["error"]
    told = client.get("/v1/status").json()
    assert told["seq"] == 1
    assert "disk I/O error" in told["stopped"]
    assert client.post("/v1/deltas", json=MORE).status_code == 503
    assert client.get("/v1/nodes/a").status_code == 200  # what is known is answered
    assert client.get("/readyz").json()["status"] == "stopped"
    assert ended == [signal.SIGTERM]


def test_a_delta_that_needs_too_much_is_set_aside_and_others_are_taken(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_batch = OnlineLearner.apply_batch

    def lacking(self: OnlineLearner, deltas: Any) -> Any:
        if "d" in deltas[0].nodes:
            raise MemoryError
        return apply_batch(self, deltas)

    monkeypatch.setattr(OnlineLearner, "apply_batch", lacking)
    before = client.post("/v1/predictions", json={"ids": ["a"]}).json()
    answer = client.post("/v1/deltas", json=MORE)
    assert answer.status_code == 507
    assert "delta 2 could not be applied (MemoryError)" in answer.json()["error"]
    assert client.post("/v1/predictions", json={"ids": ["a"]}).json() == before
    other = MORE | {"nodes": ["e"]}  # with the same key
    assert client.post("/v1/deltas", json=other).json()["seq"] == 2
    assert client.get("/v1/status").json()["set_aside"] == 1
