"""A process that answers beside the one that writes to the folder."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from fastapi.testclient import TestClient

from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.limits import Limits

HERE = "http://127.0.0.1:8000"
QUESTION = {"ids": ["0-0", "0-1", "0-2"], "all": True}


def delta(step: int, generator: torch.Generator) -> Delta:
    """Three nodes that are joined to the first three, so that every delta moves these."""
    nodes = tuple(f"{step}-{place}" for place in range(3))
    edges = [(node, f"0-{place}") for place, node in enumerate(nodes)] if step else []
    features = torch.rand(3, 4, generator=generator)
    return Delta(nodes=nodes, features=features, labels=("x", "y", None), edges=tuple(edges))


def test_a_reader_answers_from_whole_deltas_and_refuses_changes(
    tmp_path: Path, learner: Any
) -> None:
    generator, known, expected = torch.Generator().manual_seed(0), learner(), {}
    deltas = [delta(step, generator) for step in range(8)]
    for step, each in enumerate(deltas, 1):
        known.apply(each)
        expected[step] = known.predict_proba(QUESTION["ids"])[1]
    writer = LearnerFolder.open(tmp_path / "learner", make=learner)
    writer.submit(deltas[0])
    reader = LearnerFolder.open(tmp_path / "learner", make=learner, readonly=True)
    with TestClient(create_app(reader, limits=Limits(patience=20.0)), base_url=HERE) as client:
        teaching = Thread(target=lambda: [writer.submit(each) for each in deltas[1:]])
        teaching.start()
        seen = [0]
        while seen[-1] < 8:
            answer = client.post(f"/v1/predictions?after={seen[-1] + 1}", json=QUESTION)
            told = answer.json()
            rows = torch.tensor([one["probabilities"] for one in told["predictions"]])
            assert torch.allclose(rows, expected[told["seq"]], atol=1e-5)
            seen.append(told["seq"])
        teaching.join()
        assert seen == sorted(seen)
        (process,) = client.get("/v1/status").json()["replicas"]
        assert (process["role"], process["seq"], process["lag"]) == ("reader", 8, 0)
        assert 'process_seq{process="0",role="reader"} 8.0' in client.get("/metrics").text
        assert client.get("/readyz").json() == {"status": "ready"}
        for path, body in (("forget", {"ids": ["0-0"]}), ("compact", {}), ("upsert", None)):
            sent = body if body is not None else {"nodes": ["n"], "features": [[1.0] * 4]}
            answer = client.post(f"/v1/{path}", json=sent)
            assert answer.status_code == 403
            assert answer.json()["error"].startswith("this process only reads")
        assert client.get("/v1/keys?prefix=k").status_code == 403
    writer.close()


def test_a_reader_that_cannot_follow_is_told_to_stop(
    tmp_path: Path, learner: Any, monkeypatch: Any
) -> None:
    LearnerFolder.open(tmp_path / "learner", make=learner).close()
    reader = LearnerFolder.open(tmp_path / "learner", make=learner, readonly=True)
    killed: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append(number))
    app = create_app(reader)
    with TestClient(app, base_url=HERE):

        def failing() -> int:
            raise RuntimeError("on purpose")

        monkeypatch.setattr(reader, "refresh", failing)
        while not killed:
            time.sleep(0.01)
    assert app.state.failed.is_set()
