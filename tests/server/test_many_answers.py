"""Large answers come in parts, all as of one delta, and stop with their client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import torch
from starlette.requests import ClientDisconnect

from evergraph.online.delta import Delta
from evergraph.server import service as service_module
from evergraph.server.bodies import Question
from evergraph.server.limits import Limits
from evergraph.server.many_answers import ManyAnswers
from evergraph.server.service import Service

NODES = ["a", "b", "c", 1, 2, 3]


@pytest.mark.parametrize("all_", [True, False])
def test_parts_make_the_same_answer(
    lasting: Any, monkeypatch: pytest.MonkeyPatch, all_: bool
) -> None:
    body = {"ids": NODES * 20, "all": all_}
    whole = lasting.post("/v1/predictions", json=body)
    assert "content-length" in whole.headers
    monkeypatch.setattr(service_module, "MUCH", 0)
    monkeypatch.setattr("evergraph.server.many_answers.ROWS", 7)
    monkeypatch.setattr("evergraph.server.many_answers.NUMBERS", 64)
    parts = lasting.post("/v1/predictions", json=body)
    assert "content-length" not in parts.headers
    assert parts.json().keys() == whole.json().keys()
    assert parts.json()["seq"] == whole.json()["seq"]
    for one, other in zip(parts.json()["predictions"], whole.json()["predictions"], strict=True):
        assert one.keys() == other.keys()
        assert (one["id"], one["label"]) == (other["id"], other["label"])
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-6)
    empty = {"seq": 1, "predictions": []} | ({"classes": ["x", "y"]} if all_ else {})
    assert lasting.post("/v1/predictions", json={"ids": [], "all": all_}).json() == empty
    unknown = lasting.post("/v1/predictions", json={"ids": [*NODES * 20, "nobody"], "all": all_})
    assert (unknown.status_code, unknown.json()["error"]) == (
        404,
        "node 'nobody' is not in the graph",
    )


def test_all_parts_are_of_one_delta(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evergraph.server.many_answers.ROWS", 1)
    learner, view = client.folder.learner, client.folder.learner.frozen()
    expected = [view.answer([node], every_class=True).predictions[0] for node in NODES]
    many = ManyAnswers(view, NODES, every_class=True)
    steps, number = many.steps(), 0
    for number, step in enumerate(steps):
        step()
        if number == len(NODES):  # all are found, and none is scored
            learner.apply(
                Delta(
                    forgotten=("a",), late=(("c", "y"),), updated=("b",),
                    updated_features=torch.tensor([[-5.0, 3.0]]),
                )
            )  # fmt: skip
    assert number == 2 * len(NODES)
    told = b"".join(part() for part in many.parts())
    found = json.loads(told)
    assert found["seq"] == 1
    for one, other in zip(found["predictions"], expected, strict=True):
        assert one["id"] == other.id
        assert one["probabilities"] == pytest.approx(other.probabilities, abs=1e-6)
    assert view._pins == 0
    assert view.status.seq == 2


def test_nodes_are_found_however_often_a_delta_comes_between(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evergraph.server.many_answers.ROWS", 1)
    learner, view = client.folder.learner, client.folder.learner.frozen()
    many = ManyAnswers(view, NODES, every_class=False)
    for number, step in enumerate(many.steps()):
        step()
        if number < 40:
            learner.apply(Delta(late=(("c", "xy"[number % 2]),)))
    told = b"".join(part() for part in many.parts())
    assert told.startswith(b'{"seq":')
    assert told.count(b'"id"') == len(NODES)


def test_an_answer_of_too_many_numbers_is_refused(serve: Any, first: Any) -> None:
    client = serve(answers=100)
    client.post("/v1/deltas", json=first)
    few = {"ids": ["a"] * 50, "all": True}
    assert client.post("/v1/predictions", json=few).status_code == 200
    more = client.post("/v1/predictions", json={"ids": ["a"] * 51, "all": True})
    assert (more.status_code, more.json()["error"]) == (
        413,
        "an answer must hold at most 100 probabilities, not 51 of 2 classes: ask for at most 50 "
        "nodes at a time",
    )
    assert client.post("/v1/predictions", json={"ids": ["a"] * 51}).status_code == 200


def test_a_client_that_goes_stops_the_work(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(client.folder, Limits())
    view = client.folder.learner.frozen()
    scored: list[int] = []
    monkeypatch.setattr(ManyAnswers, "_score", lambda *_: scored.append(1))

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    async def main() -> None:
        async for _ in service.told(Question(NODES, True), gone):
            pytest.fail("nobody is there")

    with pytest.raises(ClientDisconnect):
        asyncio.run(main())
    assert (scored, view._pins, service._sent) == ([], 0, 0)
    service.pools.close()
    service._writer.close()


def test_a_status_names_some_classes(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/v1/status").json()["names"] == ["x", "y"]
    monkeypatch.setattr(service_module, "MOST_NAMES", 1)
    told = client.get("/v1/status").json()
    assert (told["names"], told["classes"]) == (["y"], 2)
    pages = [client.get(f"/v1/classes?start={start}&limit=1").json() for start in range(3)]
    assert [page["classes"] for page in pages] == [["x"], ["y"], []]
    assert [page["next"] for page in pages] == [1, None, None]
