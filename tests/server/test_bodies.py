"""What is read quickly is what the models read, and the rest is left to them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.server.arrow import delta_from_arrow
from evergraph.server.bodies import LONGEST_ID, quick_delta
from evergraph.server.http import RefusedError
from evergraph.server.payloads import DeltaBody, parse

pytest.importorskip("orjson")

IDS = st.one_of(
    st.sampled_from(["a", "b", "é", 0, -7, 2**63 - 1]),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=4),
)
ODD = st.sampled_from(["", 2**63, True, 1.5, None, "x" * (LONGEST_ID + 1), ["a"], {}])
NUMBERS = st.sampled_from([0, 1, -2.5, 1e300, 10**25])


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Bodies that are sound, most of the time."""
    ids = IDS if draw(st.integers(0, 2)) else IDS | ODD
    numbers = (
        NUMBERS | st.sampled_from([True, "1", None]) if not draw(st.integers(0, 2)) else NUMBERS
    )
    told = ids | NUMBERS | st.lists(ids, max_size=2)
    nodes = draw(st.lists(ids, max_size=3))
    edges = draw(
        st.lists(st.tuples(ids, ids) if draw(st.booleans()) else st.tuples(ids), max_size=3)
    )
    body = {
        "nodes": nodes,
        "features": [draw(st.lists(numbers, min_size=2, max_size=2)) for _ in nodes],
        "labels": draw(st.lists(told | st.none(), max_size=2)),
        "edges": edges,
        "weights": draw(st.lists(numbers, max_size=2)),
        "relations": draw(st.lists(st.text(max_size=2), max_size=2)),
        "types": draw(st.lists(st.text(max_size=2) | st.none(), max_size=2)),
        "removed_edges": draw(st.lists(st.tuples(ids, ids), max_size=2)),
        "updated": draw(st.lists(ids, max_size=2)),
        "late": draw(st.lists(st.tuples(ids, told), max_size=2)),
        "forgotten": draw(st.lists(ids, max_size=2)),
        "key": draw(st.sampled_from([None, "k", "", "k" * 201, 3])),
    }
    kept = draw(st.sets(st.sampled_from(list(body)), max_size=6))
    return {name: value for name, value in body.items() if name in kept}


@given(bodies())
@settings(max_examples=80, deadline=None)
def test_what_is_read_quickly_is_what_the_model_reads(body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    try:
        slow = parse(DeltaBody, data).delta()
    except RefusedError:
        assert quick_delta(data, keyed=True) is None
        return
    quick = quick_delta(data, keyed=True)
    if quick is None:  # a label that the model takes for a number, and the learner refuses
        assert str(2**63) in data.decode()
        return
    for name, value in vars(slow).items():
        ours = getattr(quick, name)
        if isinstance(value, torch.Tensor):
            assert ours.equal(value), name
            assert ours.shape == value.shape
        elif name == "key":
            assert ours == value
        else:
            assert repr(list(ours)) == repr(list(value)), name


@pytest.mark.parametrize(
    "body",
    [
        b"[",
        b"[]",
        b'{"nodes": null}',
        b'{"more": []}',
        b'{"rows": [{"id": "a"}]}',
        b'{"features": [[1], [1, 2]]}',
        b'{"features": [[NaN]]}',
        b'{"edges": ["ab"]}',
        b'{"weights": [1e999]}',
        b'{"nodes": ["\\ud800"]}',
        b'{"edges": [["a", "b", "c"]]}',
    ],
)
def test_what_takes_a_closer_look_is_left(body: bytes) -> None:
    assert quick_delta(body, keyed=True) is None


def test_an_upsert_has_no_key() -> None:
    body = b'{"edges": [["a", 1]], "key": "k"}'
    assert quick_delta(body, keyed=False) is None
    assert list(quick_delta(body, keyed=True).edges) == [("a", 1)]  # type: ignore[union-attr]


def stream(columns: dict[str, Any]) -> bytes:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_arrow_has_the_limits_that_json_has() -> None:
    longest, long = "é" * LONGEST_ID, "é" * (LONGEST_ID + 1)
    assert delta_from_arrow(stream({"id": [longest]})).forgotten == (longest,)
    for columns, name in (
        ({"id": ["a", long]}, "id"),
        ({"source": ["a", long], "target": ["b", "b"]}, "source"),
        ({"id": ["a", "b"], "label": ["x", long]}, "label"),
        ({"id": ["a", "b"], "f": [0.0, 0.0], "label": [["x"], [long]]}, "label"),
    ):
        with pytest.raises(DataError, match=f"row 2 has a text in column '{name}' that is longer"):
            delta_from_arrow(stream(columns))
