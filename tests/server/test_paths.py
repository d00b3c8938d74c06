"""What clients are told names no place on the server's disk; the log does."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evergraph.core.errors import DataError, ResourceError, StoppedError
from evergraph.server.http import without_paths

LABELS = {"labels": [["c", "x"]]}


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("kind", [StoppedError, DataError])
def test_a_refusal_names_files_by_their_names(
    lasting: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, kind: type[Exception]
) -> None:
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


def test_a_delta_that_cannot_be_applied_is_refused_without_paths(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = client.folder.learner
    monkeypatch.setattr(learner, "apply_batch", raising(OSError(27, "File too large", "/var/x/y")))
    answer = client.post("/v1/labels", json=LABELS)
    assert answer.status_code == 507
    assert "File too large" in answer.json()["error"]
    assert str(client.folder.path) not in answer.text
    assert "/var/x" not in answer.text


def test_a_learner_that_stopped_says_why_without_its_folder(client: Any) -> None:
    where = client.folder.path
    client.folder._files._stopped = f"{where}/journal.sqlite: the disk failed (/var/x/y)"
    answers = [client.post("/v1/labels", json=LABELS), client.get("/v1/status")]
    assert [answer.status_code for answer in answers] == [503, 200]
    assert answers[1].json()["stopped"] == "journal.sqlite: the disk failed (y)"
    assert not [answer for answer in answers if str(where.parent) in answer.text]


def test_what_readers_and_the_database_say_is_told_without_paths(
    lasting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evergraph.online.folder.sqlite_file import sound

    odd = lasting.post("/v1/predictions", json={"ids": ["/etc/a/b"]})
    assert odd.json() == {"error": "node '/etc/a/b' is not in the graph"}  # no path, but an id
    error = ResourceError(f"{lasting.folder.path}: the disk is full")
    monkeypatch.setattr(lasting.folder.learner.frozen(), "answer", raising(error))
    answer = lasting.post("/v1/predictions", json={"ids": ["a"]})
    assert answer.json() == {"error": "learner: the disk is full"}

    def last(_: str) -> None:
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
def test_paths_become_names(said: str, told: str) -> None:
    assert without_paths(ResourceError(said), Path("/srv/my data/learner")) == told
