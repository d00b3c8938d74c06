"""Random payloads: no 500, no crash, and no trace of what was refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evergraph.server.http import ARROW

# The nodes that ``fingerprint`` asks for are never forgotten here.
KEPT = ("a", "b", "c", 1, 2, 3)
IDS = st.one_of(
    st.sampled_from([*KEPT, "n", "m", 7, 2**63, -1, "", "1", True, 1.0, None]),
    st.text(max_size=5),
    st.integers(),
)
OTHERS = IDS.filter(lambda node: type(node) is bool or node not in KEPT)
NUMBERS = st.one_of(st.floats(width=32), st.integers(-9, 9), st.sampled_from(["1", None, 1e300]))
ROWS = st.lists(st.lists(NUMBERS, min_size=1, max_size=3), max_size=3)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
SOUND = st.builds(
    lambda ids, rows: {"nodes": ids, "features": rows[: len(ids)]},
    st.lists(st.text("pqrs", min_size=1, max_size=3), unique=True, max_size=3),
    st.lists(st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=2), min_size=3, max_size=3),
)
DELTAS = st.one_of(
    SOUND,
    JUNK,
    st.fixed_dictionaries(
        {},
        optional={
            "nodes": st.lists(OTHERS, max_size=3) | JUNK,
            "features": ROWS | JUNK,
            "labels": st.lists(IDS, max_size=3),
            "edges": st.lists(st.lists(IDS, min_size=1, max_size=3), max_size=3) | JUNK,
            "late": st.lists(st.tuples(OTHERS, IDS), max_size=2),
            "forgotten": st.lists(OTHERS, max_size=2),
            "key": st.sampled_from(["first", "k", "", None]) | st.text(max_size=5) | JUNK,
        },
    ),
)


@given(DELTAS)
@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
def test_deltas(lasting: TestClient, fingerprint: Any, payload: Any) -> None:
    before = fingerprint(lasting)
    body = json.dumps(payload).encode()  # NaN and Infinity too
    answer = lasting.post("/v1/deltas", content=body, headers={"Content-Type": "application/json"})
    judged(answer, before, lambda: fingerprint(lasting))


@given(st.binary(max_size=80), st.sampled_from(["application/json", ARROW, "text/csv"]))
@settings(deadline=None, max_examples=50)
def test_bytes(lasting: TestClient, fingerprint: Any, body: bytes, kind: str) -> None:
    for path in ("deltas", "labels", "forget", "predictions"):
        before = fingerprint(lasting)
        answer = lasting.post(f"/v1/{path}", content=body, headers={"Content-Type": kind})
        judged(answer, before, lambda: fingerprint(lasting))


@given(st.text(min_size=1, max_size=12), st.booleans())
@settings(deadline=None, max_examples=100)
def test_ids_in_paths(lasting: TestClient, node: str, integer: bool) -> None:
    answer = lasting.get(f"/v1/nodes/{quote(node, safe='')}", params={"integer": integer})
    assert answer.status_code in (200, 404, 422)


def judged(answer: Any, before: str, now: Callable[[], str]) -> None:
    """Check that a request was either done, or refused without a trace."""
    assert answer.status_code in (200, 404, 409, 415, 422), answer.text
    if answer.status_code != 200:
        assert list(answer.json()) == ["error"]
        assert now() == before
