"""Small questions are answered together, and as each would be alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from evergraph.core.errors import UnknownNodeError
from evergraph.online.heads.fused_scorer import FusedScorer
from evergraph.online.view import FEW, Answer, LearnerView
from evergraph.server import service as service_module
from evergraph.server.http import RefusedError
from evergraph.server.routes import after_in
from evergraph.server.schema import to_json
from evergraph.server.service import in_blocks
from evergraph.server.workers import Together


def asked_at_once(
    questions: Sequence[Sequence[Any]], calls: list[int], gone: int | None = None, **options: Any
) -> Any:
    def answer(ids: Sequence[Any], every_class: bool) -> Answer:
        calls.append(len(ids))
        if "nobody" in ids:
            raise UnknownNodeError("node 'nobody' is not in the graph")
        return Answer(7, tuple(ids))  # type: ignore[arg-type]

    async def main() -> Any:
        together = Together(answer, **options)
        waiting = [together.ask(ids, False) for ids in questions]
        if gone is not None:
            waiting.pop(gone).cancel()
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(main())


def test_what_waits_is_answered_in_one_call_and_each_gets_its_part() -> None:
    calls: list[int] = []
    told = asked_at_once([["a"], [], ["b", "c"]], calls)
    assert [one.predictions for one in told] == [("a",), (), ("b", "c")]
    assert calls == [3]
    told = asked_at_once([["a"], ["nobody"], ["b"]], [])  # what is wrong spoils no other
    assert (told[0].predictions, told[2].predictions) == (("a",), ("b",))
    assert isinstance(told[1], UnknownNodeError)
    calls.clear()
    asked_at_once([["a"] * 3] * 5 + [["b"] * 9], calls, most=6)
    assert calls == [6, 6, 3, 9]  # a call is of bounded size
    calls.clear()
    (told,) = asked_at_once([["a"], ["b"]], calls, gone=0)  # who asked and went is passed over
    assert (told.predictions, calls) == (("b",), [1])


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 300])
def test_few_and_many_are_told_the_same(lasting: TestClient, count: int) -> None:
    ids = (["a", "c", 1, 3] * count)[:count]
    told = lasting.post("/v1/predictions", json={"ids": ids, "all": True}).json()
    alone = [
        lasting.post("/v1/predictions", json={"ids": [node], "all": True}).json()
        for node in ids[:4]
    ]
    for one, other in zip(told["predictions"], alone, strict=False):
        (expected,) = other["predictions"]
        assert (one["id"], one["label"]) == (expected["id"], expected["label"])
        assert one["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-6)
        assert one["probability"] == max(one["probabilities"])
    answer = lasting.post("/v1/predictions", json={"ids": [*ids, "nobody"]})
    assert answer.status_code == 404
    assert answer.json() == {"error": "node 'nobody' is not in the graph"}


@pytest.mark.parametrize("every", [False, True])
def test_many_are_written_in_blocks_as_they_are_at_once(lasting: TestClient, every: bool) -> None:
    view = lasting.folder.learner.frozen()  # type: ignore[attr-defined]
    for count in (0, 1, 500, 1_001):
        answer = view.answer((["a", "c", 1, 3] * count)[:count], every_class=every)
        assert in_blocks(answer) == orjson.dumps(to_json(answer))


@pytest.mark.parametrize("quick", [True, False])
def test_what_takes_long_is_answered_in_a_thread(
    lasting: TestClient, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    threads: list[str] = []
    answer = LearnerView.answer

    def noting(view: LearnerView, ids: Any, *, every_class: bool = False) -> Answer:
        threads.append(threading.current_thread().name)
        return answer(view, ids, every_class=every_class)

    monkeypatch.setattr(FusedScorer, "quick", quick)
    monkeypatch.setattr(LearnerView, "answer", noting)
    assert lasting.post("/v1/predictions", json={"ids": ["a"]}).status_code == 200
    assert threads[0].startswith("evergraph-predictions") != quick


def test_one_node_by_its_address(lasting: TestClient) -> None:
    for node, text in (("a", "a"), (3, "3")):
        told = lasting.get(f"/v1/predictions/{text}").json()
        assert told == lasting.post("/v1/predictions", json={"ids": [node]}).json()
    told = lasting.get("/v1/predictions/3?integer=true&all=true").json()
    assert told == lasting.post("/v1/predictions", json={"ids": [3], "all": True}).json()
    assert lasting.get("/v1/predictions/nobody").status_code == 404
    assert lasting.get("/v1/predictions/nobody?integer=true").status_code == 422


@pytest.mark.parametrize("text", [b"after=", b"after=-1", b"after=1.5", b"after=9" + b"9" * 19])
def test_what_is_no_seq_is_refused(text: bytes) -> None:
    with pytest.raises(RefusedError, match="after must be the seq of a delta"):
        after_in(text)


def test_an_answer_of_too_many_numbers_is_refused(serve: Any, first: Any) -> None:
    client = serve(answers=100)
    client.post("/v1/deltas", json=first)
    few = {"ids": ["a"] * 50, "all": True}
    assert client.post("/v1/predictions", json=few).status_code == 200
    more = client.post("/v1/predictions", json={"ids": ["a"] * 51, "all": True})
    assert (more.status_code, more.json()["error"]) == (
        413,
        "an answer must hold at most 100 probabilities, not 51 of 2 classes: request at most 50 "
        "nodes at a time",
    )
    assert client.post("/v1/predictions", json={"ids": ["a"] * 51}).status_code == 200


def test_a_status_names_some_classes(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/v1/status").json()["names"] == ["x", "y"]
    monkeypatch.setattr(service_module, "MOST_NAMES", 1)
    told = client.get("/v1/status").json()
    assert (told["names"], told["classes"]) == (["y"], 2)
    pages = [client.get(f"/v1/classes?start={start}&limit=1").json() for start in range(3)]
    assert [page["classes"] for page in pages] == [["x"], ["y"], []]
    assert [page["next"] for page in pages] == [1, None, None]
