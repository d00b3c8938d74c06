"""A delta comes back from its bytes as it was, and damaged bytes do not come back at all."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.online.codecs.delta_bytes import delta_from_bytes, delta_to_bytes, digest_of
from evergraph.online.delta import Delta

# Lone surrogates too: JSON can carry them.
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
IDS = TEXT | st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(width=32, allow_nan=True)
TARGETS = (
    IDS | st.floats(allow_nan=False, allow_infinity=False) | st.lists(IDS, max_size=2).map(tuple)
)


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    nodes, dims = draw(st.lists(IDS, max_size=4)), draw(st.integers(0, 3))
    values = [draw(st.lists(FLOATS, min_size=dims, max_size=dims)) for _ in nodes]
    known, edges = draw(st.lists(IDS, max_size=2)), draw(st.lists(st.tuples(IDS, IDS), max_size=4))
    weights = st.just(0.0) | st.floats(0.25, 9, width=32)

    def for_each(values: st.SearchStrategy, of: list) -> list:
        return draw(st.just([]) | st.lists(values, min_size=len(of), max_size=len(of)))

    return Delta(
        nodes=nodes,
        features=torch.tensor(values, dtype=torch.float32).view(len(nodes), dims),
        labels=draw(st.lists(st.none() | TARGETS, max_size=4)),
        types=for_each(st.none() | TEXT, nodes),
        edges=edges,
        weights=for_each(weights, edges),
        relations=for_each(TEXT, edges),
        removed_edges=draw(st.lists(st.tuples(IDS, IDS), max_size=2)),
        updated=known,
        updated_features=torch.rand(len(known), dims),
        late=draw(st.lists(st.tuples(IDS, TARGETS), max_size=3)),
        forgotten=draw(st.lists(IDS, max_size=3)),
        key=draw(st.none() | TEXT),
        refit=draw(st.booleans()),
    )


LISTED = [
    "nodes",
    "labels",
    "types",
    "edges",
    "relations",
    "removed_edges",
    "updated",
    "late",
    "forgotten",
]


@given(deltas())
def test_round_trip(delta):
    data = delta_to_bytes(delta)
    back = delta_from_bytes(data)
    assert list(back.weights) == list(delta.weights)
    if len(delta.updated):
        assert back.updated_features.equal(delta.updated_features)
    for name in LISTED:
        assert list(getattr(back, name)) == list(getattr(delta, name))
        # 1 and True, or 1 and "1", are not one id.
        assert repr(list(getattr(back, name))) == repr(list(getattr(delta, name)))
    assert (back.key, back.refit) == (delta.key, delta.refit)
    assert back.features.dtype == torch.float32
    assert back.features.shape == delta.features.shape
    assert back.features.numpy().tobytes() == delta.features.numpy().tobytes()
    assert delta_to_bytes(back) == data


def sealed(header: bytes, values: bytes) -> bytes:
    body = len(header).to_bytes(4, "little") + header + values
    return b"\x05" + hashlib.sha256(body).digest() + body


def test_layout_by_hand():
    data = delta_to_bytes(Delta(nodes=("a",), features=torch.tensor([[1.0, -2.0]]), labels=(7,)))
    header = b'{"ids":[["nodes","json",1,5]],"key":null,"labels":[7],"shapes":[[1,2],[0,0],[0]]}'
    assert data == sealed(header, bytes.fromhex("0000803f000000c0") + b'["a"]')
    assert digest_of(data) == data[1:33]


CHANGES = Delta(
    edges=(("a", "b"),),
    weights=(0.5,),
    removed_edges=((7, -1),),
    updated=("a",),
    updated_features=torch.tensor([[1.0]]),
    key="k",
)


def test_layout_of_edges_by_hand():
    header = (
        b'{"ids":[["updated","json",1,5],["edges from","json",1,5],["edges to","json",1,5],'
        b'["removed_edges from","numbers",1,8],["removed_edges to","numbers",1,8]],"key":"k",'
        b'"shapes":[[0,0],[1,1],[1]]}'
    )
    values = bytes.fromhex("0000803f0000003f") + b'["a"]["a"]["b"]'
    values += (7).to_bytes(8, "little") + b"\xff" * 8
    assert delta_to_bytes(CHANGES) == sealed(header, values)


@given(deltas(), st.data())
def test_no_changed_byte_and_no_shorter_bytes_are_taken(delta, data):
    written = bytearray(delta_to_bytes(delta))
    place = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(DataError):
        delta_from_bytes(bytes(written[:place]))
    written[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DataError, match=r"^a delta('s checksum is wrong| is written in layout)"):
        delta_from_bytes(bytes(written))
    with pytest.raises(DataError, match=r"layout 6, this .* reads layout 5: open it with"):
        delta_from_bytes(b"\x06" + bytes(written)[1:])


@pytest.mark.parametrize(
    ("delta", "sentence"),
    [
        (Delta(features=torch.zeros(0, 2, dtype=torch.float64)), r"not float64 \[0, 2\]"),
        (Delta(features=torch.zeros(2)), r"not float32 \[2\]"),
        (Delta(forgotten=(b"a",)), r"must be strings or integers, not b'a' \(bytes\)"),
        (Delta(key=3), "key must be text, not 3"),
        (Delta(edges=(("a", "b"),), weights=("heavy",)), "edge 0 has weight 'heavy': expected 0,"),
    ],
)
def test_what_would_not_come_back_the_same_is_refused(delta, sentence):
    with pytest.raises(DataError, match=sentence):
        delta_to_bytes(delta)
