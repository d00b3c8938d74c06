"""Compacting over HTTP."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evergraph.cli.app import app
from evergraph.core.errors import ConfigurationError
from evergraph.online.folder.backup import restore
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.auth import Tokens
from evergraph.server.bodies import DeltaBody
from evergraph.server.client import Client
from evergraph.server.limits import Limits


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


def test_places_of_forgotten_nodes_go_while_the_service_answers(client: Any) -> None:
    many = {"nodes": [*range(10, 50)], "features": [[0.5, 0.5]] * 40, "labels": ["x"] * 40}
    client.post("/v1/deltas", json=many)
    client.post("/v1/forget", json={"ids": [*range(10, 50)]})
    question = {"ids": ["a", 3], "all": True}
    said, page = client.post("/v1/predictions", json=question).json(), client.get("/v1/ids?limit=2")
    assert client.post("/v1/compact", json={"now": True}).json()["places"] == 40
    assert client.post("/v1/predictions", json=question).json() == said
    refused = client.get(f"/v1/ids?start={page.json()['next']}")
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("start must be 0, not ")
    assert client.get("/v1/ids").json()["ids"] == page.json()["ids"] + ["c", 1, 2, 3]
    assert client.post("/v1/labels", json={"labels": [["c", "y"]]}).json()["seq"] == 4


def test_only_who_may_write_may_compact(serve: Any) -> None:
    service = serve(tokens=Tokens((("read", "r" * 20), ("follow", "f" * 20))))
    for token in ("r" * 20, "f" * 20):
        headers = {"Authorization": f"Bearer {token}"}
        assert service.post("/v1/compact", json={}, headers=headers).status_code == 403
    asked = {token: {"Authorization": f"Bearer {token * 20}"} for token in "rf"}
    assert service.get("/v1/backup", headers=asked["r"]).status_code == 403
    assert service.get("/v1/backup", headers=asked["f"]).content[257:262] == b"ustar"


def test_a_service_is_backed_up_from_afar(
    live: Any, learner: Any, first: Any, tmp_path: Path
) -> None:
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
