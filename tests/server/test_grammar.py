"""Deltas in both encodings, sound ones and some with one thing wrong: no 500, no trace of refusals.

What routes take besides bodies is asked for by ``test_openapi``, from the document.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random, SystemRandom
from typing import Any

import pyarrow as pa
import pytest
import torch
from fastapi.testclient import TestClient

from arrow_bytes import stream
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.client import arrow_from_delta
from evergraph.server.http import ARROW, JSON, Limits

KNOWN: tuple[str | int, ...] = ("a", "b", "c", 1, 2, 3)
NUMBERS = (0, -1, 1.5, 1e308, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40)
NO_NUMBERS = (float("nan"), float("inf"), float("-inf"))
TEXTS = (
    "",
    " ",
    "0",
    "z",
    "\0",
    "ü" * 3,
    "\ud800",
    "\u202e",
    "x" * 1024,
    "x" * 1025,
    "null",
    "NaN",
)
TREES: tuple[Any, ...] = ([], {}, [[]], [None], {"": None}, [[[[[[]]]]]])
ODD = (None, True, False, *NUMBERS, *NO_NUMBERS, *TEXTS, *TREES)
LONG = (b"[" * 5_000, b'{"nodes":' * 500, b'{"ids":[' + b"9" * 5_000 + b"]}")
JUNK = (*LONG, b"\xff\xfe", b"null", b"[]", b'"a"', b"1e999", b"", b"ARROW1\0\0")


class Grammar:
    """Draws bodies for the routes that change something; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.fresh = 1_000 * seed
        self.came: list[str | int] = ["nobody"]

    def request(self) -> tuple[str, str, bytes, bool]:
        """Return a path, a media type, a body, and whether nothing is wrong with it."""
        draw = self.draw
        path = draw.choice(("deltas", "deltas", "upsert", "upsert", "labels", "forget"))
        arrow = path in ("deltas", "upsert") and draw.random() < 0.5
        known = KNOWN[:3] if arrow else KNOWN  # a column is of one kind
        said = {
            "labels": {"labels": [[draw.choice((*known, "nobody")), draw.choice("xyz")]]},
            "forget": {"ids": [draw.choice(self.came[-3:])]},
        }.get(path) or self.delta(arrow, known, repeats=path == "upsert")
        sound, wild = draw.random() < 0.4, draw.random() < 0.1
        if arrow:
            features = torch.tensor(said["features"], dtype=torch.float32).reshape(-1, 2)
            body = arrow_from_delta(Delta(**said | {"features": features}))
            body = body if sound else self.other_arrow(body)
        else:
            body = json.dumps(said if sound else self.other_tree(said)).encode()
            if not sound and draw.random() < 0.15:
                body = body[: draw.randrange(len(body))]
        if not sound and wild:
            body = draw.choice(JUNK)
        return f"/v1/{path}", ARROW if arrow else JSON, body, sound

    def delta(self, arrow: bool, known: tuple[str | int, ...], *, repeats: bool) -> dict[str, Any]:
        """Return a delta with some of its parts; repeats: its nodes may be known already."""
        draw, nodes = self.draw, []
        for _ in range(draw.randint(0, 3)):
            self.fresh += 1
            nodes.append(f"new-{self.fresh}" if arrow or draw.random() < 0.5 else self.fresh)
        self.came += nodes
        if repeats and nodes and draw.random() < 0.5:
            nodes[0] = draw.choice(known)
        parts = {
            "nodes": nodes,
            "features": [[draw.uniform(-1, 1), draw.uniform(-1, 1)] for _ in nodes],
            "labels": [draw.choice((None, "x", "y")) for _ in nodes],
        }
        if draw.random() < 0.5 or not nodes:
            parts["edges"] = [[draw.choice((*nodes, *known)), draw.choice(known)] for _ in "12"]
        if draw.random() < 0.5:
            parts["late"] = [[draw.choice(known), draw.choice("xyz")]]
        if not repeats and not arrow and draw.random() < 0.5:
            parts["key"] = f"k{draw.randrange(10_000)}"
        return parts

    def other_tree(self, tree: Any) -> Any:
        """Return JSON with one place changed: another value, none, one too many, one level more."""
        tree = deepcopy(tree)
        holder, place = tree, self.draw.choice([*tree])
        while isinstance(holder[place], list) and holder[place] and self.draw.random() < 0.7:
            holder, place = holder[place], self.draw.randrange(len(holder[place]))
        way = self.draw.choice(("odd", "odd", "gone", "twice", "wrapped", "unknown"))
        if way == "unknown" and isinstance(holder, dict):
            holder[self.draw.choice(("node", "Key", "", "__proto__", "rows"))] = "x"
        elif way == "gone":
            del holder[place]
        elif way == "twice" and isinstance(holder, list):
            holder.append(deepcopy(holder[place]))
        else:
            holder[place] = [holder[place]] if way == "wrapped" else self.draw.choice(ODD)
        return tree

    def other_arrow(self, body: bytes) -> bytes:
        """Return tables with a bit or an end, a name, a column or a type changed."""
        draw = self.draw
        bit = bytearray(body)
        bit[draw.randrange(len(bit))] ^= 1 << draw.randrange(8)
        cut = body[: draw.randrange(len(body))]
        spoiled = [bytes(bit), cut, body * 2, body + b"\0" * 9]
        table = pa.ipc.open_stream(body).read_all()
        place, rows, names = draw.randrange(table.num_columns), table.num_rows, table.column_names
        spoiled.append(stream(table.drop([names[place]])))
        values = (
            pa.nulls(rows),
            pa.array([b"\xff"] * rows),
            pa.array([1.5] * rows),
            pa.array([[["x"]]] * rows),
            pa.array([{"a": 1}] * rows),
            pa.array([True] * rows),
            pa.array(["x" * 2_000] * rows).dictionary_encode(),
        )
        spoiled += [
            stream(table.set_column(place, names[place], v)) for v in draw.choices(values, k=2)
        ]
        names[place] = draw.choice(("id", "source", "op", "labels", "x", ""))
        return draw.choice([*spoiled, stream(table.rename_columns(names))])


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, learner: Callable[[], Any], first: dict[str, Any]
) -> Iterator[TestClient]:
    """A service that is asked in this process; what would be a 500 is raised."""
    folder = LearnerFolder.open(tmp_path_factory.mktemp("grammar") / "learner", make=learner)
    app = create_app(folder, limits=Limits(rate=1e6, burst=10**6, seconds=20.0))
    with TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False) as client:
        assert client.post("/v1/deltas", json=first).status_code == 200
        yield client


def judged(service: TestClient, fingerprint: Callable[..., str], seed: int, count: int) -> Any:
    """Send requests, and hold every answer against the rules; return how they were answered."""
    grammar, answers, known = Grammar(seed), Counter[tuple[str, str, int]](), fingerprint(service)
    for number in range(count):
        path, kind, body, sound = grammar.request()
        about = (seed, number, path, kind, body[:300])
        answer = service.post(path, content=body, headers={"Content-Type": kind})
        status, now = answer.status_code, fingerprint(service)
        answers[path, kind, status] += 1
        assert status < 500 or status in (503, 507), (about, answer.text)
        # What is not spoiled may be refused for what is not there, or is there already.
        assert not sound or status in (200, 404, 409), (about, answer.text)
        if status >= 400:
            assert now == known, ("it was refused, and yet something has changed", about)
            assert list(answer.json()) == ["error"], about
            said = answer.json()["error"]
            assert said.strip(), about
            assert "\n" not in said, about
            assert len(said) <= 2_500, about
        known = now
    assert service.get("/healthz").status_code == 200
    return answers


def test_sixty_requests(service, fingerprint):
    answers = judged(service, fingerprint, 1, 60)
    taken = {(path, kind) for path, kind, status in answers if status == 200}
    assert taken >= {(f"/v1/{p}", kind) for p in ("deltas", "upsert") for kind in (JSON, ARROW)}
    assert {status for _, _, status in answers} >= {200, 404, 422}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_thousand_requests(service, fingerprint):
    judged(service, fingerprint, SystemRandom().randrange(10**6), 20_000)
