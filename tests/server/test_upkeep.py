"""Compacting over HTTP."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from evergraph.server.tokens import Tokens


def test_now_leaves_nothing_of_what_was_forgotten(client: Any, caplog: Any) -> None:
    secret = {"nodes": ["secret"], "features": [[0.5, 0.5]], "labels": ["hidden"]}
    client.post("/v1/deltas", json=secret)
    client.post("/v1/compact", json={})
    client.post("/v1/forget", json={"ids": ["secret"]})
    assert client.post("/v1/compact", json={"now": False}).json()["seq"] == 3
    with caplog.at_level(logging.INFO, "evergraph.audit"):
        done = client.post("/v1/compact", json={"now": True, "keys": True, "names": True})
    assert done.status_code == 200
    assert done.json()["seq"] == 4
    assert done.json()["bytes_after"] < done.json()["bytes_before"]
    assert "folder compacted" in caplog.text
    for path in client.folder.path.rglob("*"):
        if path.is_file():
            assert b"secret" not in path.read_bytes()
            assert b"hidden" not in path.read_bytes()
    status = client.get("/v1/status").json()
    assert (status["seq"], status["names"]) == (4, ["x", "y", "dropped-2"])
    assert client.get("/v1/predictions/a").json()["predictions"][0]["label"] == "x"
    assert client.post("/v1/forget", json={"ids": ["b"]}).json()["seq"] == 5


@pytest.mark.parametrize("body", [{"keys": True}, {"names": True}, {"now": 1}, {"other": True}, []])
def test_what_cannot_be_asked_for_is_refused(client: Any, body: Any) -> None:
    kept = sorted(path.name for path in client.folder.path.iterdir())
    answer = client.post("/v1/compact", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert sorted(path.name for path in client.folder.path.iterdir()) == kept


def test_only_who_may_write_may_compact(serve: Any) -> None:
    service = serve(tokens=Tokens((("read", "r" * 20), ("follow", "f" * 20))))
    for token in ("r" * 20, "f" * 20):
        headers = {"Authorization": f"Bearer {token}"}
        assert service.post("/v1/compact", json={}, headers=headers).status_code == 403
