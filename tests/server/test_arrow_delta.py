"""Deltas as Arrow tables."""

from contextlib import suppress

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_bytes import delta_from_arrow, stream
from evergraph.core.errors import EvergraphError
from evergraph.online.delta import Delta
from evergraph.server.client import arrow_from_delta
from evergraph.tables.fitting import fit_scheme

NAMES = st.lists(st.text(min_size=1, max_size=8), unique=True, min_size=1, max_size=5)
ENCODED = pa.table({"name": ["a"]}).replace_schema_metadata({b"evergraph": b"{}"})
TOLD = st.sampled_from([["x", "y"], [["x", "z"], ["y"], []], [1.5, 7.0]])
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=5)


@given(st.one_of(NAMES, NUMBERS), TOLD, st.integers(1, 4), st.booleans(), st.randoms())
def test_what_is_written_is_read(ids, told, width, forget, random):
    delta = Delta(
        nodes=tuple(ids),
        features=torch.rand(len(ids), width, generator=torch.Generator().manual_seed(len(ids))),
        labels=tuple(random.choice([None, *told]) for _ in ids),
        edges=tuple((random.choice(ids), random.choice(ids)) for _ in range(3)),
        late=tuple((node, random.choice(told)) for node in ids[:2]),
        forgotten=tuple(ids[:1]) if forget else (),
        weights=(0.5, 0.0, 3.0) if forget else (),
        removed_edges=((ids[0], ids[-1]),) if forget else (),
        updated=tuple(ids[1:]),
        updated_features=torch.rand(len(ids) - 1, width),
    )
    read = delta_from_arrow(arrow_from_delta(delta))
    assert read.features.equal(delta.features)
    if len(ids) > 1:
        assert read.updated_features.equal(delta.updated_features)
    plain = ("nodes", "labels", "edges", "late", "forgotten")
    for name in (*plain, "weights", "removed_edges", "updated"):
        assert tuple(getattr(read, name)) == tuple(getattr(delta, name)), name


@pytest.mark.parametrize("part", ["nodes", "updated"])
def test_nodes_without_features_are_not_sent_as_nodes_to_forget(part):
    with pytest.raises(EvergraphError, match=r"features have shape \(0, 0\): expected \[1, dims\]"):
        arrow_from_delta(Delta(**{part: ("a",)}))
    sent = arrow_from_delta(Delta(nodes=("a",), features=torch.ones(1, 1)))  # labels may lack
    assert delta_from_arrow(sent).labels == (None,)


def test_columns_say_what_a_table_is():
    body = stream({"id": ["a"], "height": [1], "width": [2.5]})
    body += stream({"target": ["a"], "source": ["b"]})
    body += stream({"id": ["b"], "label": [7]}) + stream({"id": ["c"]})
    delta = delta_from_arrow(body)
    assert (delta.nodes, delta.features.tolist(), delta.labels) == (("a",), [[1.0, 2.5]], (None,))
    assert (delta.edges, delta.late, delta.forgotten) == ((("b", "a"),), (("b", 7),), ("c",))


def test_time_is_read_where_the_learner_has_it_as_a_feature():
    table = pa.table({"time": [2019.0, 2021.0], "f": [0.0, 1.0]})
    scheme = fit_scheme(table, ["time", "f"])
    body = stream(table.append_column("id", [["a", "b"]]))
    assert delta_from_arrow(body, columns=scheme).features.equal(scheme.encode(table))
    other = fit_scheme(table, ["f"])
    assert delta_from_arrow(body, columns=other).features.equal(other.encode(table))


def test_a_column_says_what_is_done_with_each_row():
    ops = {"op": ["update", None, "forget"], "height": [1.0, 2.0, 0.0], "label": ["x", None, None]}
    body = stream({"id": ["a", "b", "c"]} | ops)
    body += stream({"source": ["a", "a"], "target": ["b", "c"], "op": ["remove", "add"]})
    delta = delta_from_arrow(body)
    assert (delta.nodes, delta.features.tolist(), delta.forgotten) == (("b",), [[2.0]], ("c",))
    assert (delta.updated, delta.updated_features.tolist()) == (("a",), [[1.0]])
    assert (delta.late, delta.edges, delta.removed_edges) == (
        (("a", "x"),),
        (("a", "c"),),
        (("a", "b"),),
    )
    with pytest.raises(EvergraphError, match="row 1 has 'drop' in column 'op': expected add or"):
        delta_from_arrow(stream({"source": ["a"], "target": ["b"], "op": ["drop"]}))


def test_lists_of_any_kind_categories_and_missing_labels():
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.list_(pa.int16())):
        body = stream({"id": [1, 2], "features": pa.array([[1, 2], [3, 4]], kind)})
        assert delta_from_arrow(body).features.tolist() == [[1, 2], [3, 4]]
    named = pa.array(["x", None]).dictionary_encode()
    body = stream({"id": pa.array(["a", "b"]).dictionary_encode(), "label": named, "f": [0, 1]})
    assert delta_from_arrow(body).labels == ("x", None)
    for labels, expected in (
        ([1.0, float("nan"), None], (1, None, None)),
        (["NULL", "", "x"], (None, None, "x")),
    ):
        body = stream({"id": [1, 2, 3], "f": [0.0, 0.0, 0.0], "label": labels})
        assert tuple(delta_from_arrow(body).labels) == expected


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"nonsense", "not an Arrow IPC stream"),
        (stream({"id": ["a"], "f": [1.0]})[:-40], "not an Arrow IPC stream"),
        ({"name": ["a"]}, "Arrow: has no column 'id': it has name"),
        ({"name": ["a"], "op": ["forget"]}, "Arrow: has no column 'id': it has name, op"),
        (ENCODED, "Arrow: has no column 'id': it has name"),
        ({"id": [1.5], "f": [1.0]}, "expected strings or integers"),
        ({"id": ["a", None], "f": [1, 2]}, "row 2 has no value in column 'id'"),
        ({"id": ["a"], "f": ["high"]}, "expected numbers"),
        ({"id": ["a"], "label": pa.array([None], pa.string())}, "label of node 'a' is missing"),
        ({"id": ["a"], "label": [float("nan")]}, "label of node 'a' is missing"),
        ({"id": ["a", "b"], "features": [[1.0], [1.0, 2.0]]}, "rows of one width"),
        ({"id": ["a"], "features": [[None]]}, "without gaps|expected numbers"),
        ({"id": ["a"], "f": [float("nan")]}, "row 1 has nan in column 'f': expected a finite"),
        ({"source": ["a"], "target": ["b"], "kind": [2.0]}, "relation and op, not 'kind'"),
        (stream({"id": ["a"]}) + stream({"id": ["b"]}), "one table of forgotten, not two"),
        (stream({"id": ["a"]}) * 9, "at most 6 Arrow streams"),
    ],
)
def test_what_is_wrong_is_said(body, said):
    with pytest.raises(EvergraphError, match=said):
        delta_from_arrow(body if isinstance(body, bytes) else stream(body))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("encoded", [False, True])
def test_packed_buffers_are_refused(codec, encoded):
    ids = pa.array(["a" * 50 + str(number) for number in range(100)])
    columns = {"id": ids.dictionary_encode() if encoded else ids, "f": [0.0] * 100}
    plain, packed = (
        stream(columns),
        stream(columns, options=pa.ipc.IpcWriteOptions(compression=codec)),
    )
    assert len(delta_from_arrow(plain).nodes) == 100
    with pytest.raises(EvergraphError, match="must not be compressed"):
        delta_from_arrow(packed)


@given(st.data())
@settings(deadline=None, max_examples=80)
def test_damaged_bytes_never_do_anything_but_refuse(data):
    body = bytearray(stream({"id": ["a", "b"], "label": ["x", None], "features": [[1.0], [2.0]]}))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(EvergraphError):  # and nothing else
        delta_from_arrow(bytes(body))
