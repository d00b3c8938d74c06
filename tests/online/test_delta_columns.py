"""A delta looked at in columns is what it is looked at one by one, mistakes and their words too."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError, DuplicateNodeError, EvergraphError, LooseEdgeError
from evergraph.online.checking import CheckedDelta, check_delta
from evergraph.online.codecs.delta_bytes import delta_from_bytes, delta_to_bytes
from evergraph.online.delta import Delta, EdgeColumns, edge_columns
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.identifiers import CODED_FROM, IdTable, check_id

KNOWN = ("a", "b", "c", 0, 1, 2, "1", 10**12)
NEW = ("x", "y", 7, -3, "7")
MISTAKES = (True, 1.0, None, 2**63, "\ud800", "nobody", 99)


def grown() -> tuple[IdTable, GrowingGraph]:
    """A gone node, eight known ones, and a path through them."""
    ids, graph = IdTable(), GrowingGraph(num_features=1)
    ids.add(["gone", *KNOWN])
    ids.remove(["gone"])
    graph.add(torch.zeros(9, 1), torch.stack([torch.arange(8), torch.arange(1, 9)]))
    return ids, graph


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    """A delta that fits, or has one or a few mistakes anywhere."""
    new = draw(st.lists(st.sampled_from(NEW), unique=True, max_size=4))
    good = st.sampled_from([*KNOWN, *new])
    some = good if draw(st.booleans()) else good | st.sampled_from(MISTAKES)
    known = st.sampled_from(KNOWN) if draw(st.booleans()) else some
    pair = st.tuples(some, some)
    pairs = pair if draw(st.integers(0, 3)) else pair | st.tuples(some)
    edges = draw(st.lists(pairs, max_size=6))
    weights = st.lists(
        st.sampled_from([0.0, 1.5, 2, *((-1.0, 10**18 + 1, True) if draw(st.booleans()) else ())]),
        min_size=len(edges),
        max_size=len(edges),
    )
    path = [(KNOWN[place], KNOWN[place + 1]) for place in range(7)]
    gone = st.sampled_from(path) | st.sampled_from([(b, a) for a, b in path])
    once = draw(st.booleans())
    return Delta(
        nodes=new if draw(st.integers(0, 3)) else [*new, *draw(st.lists(known, max_size=2))],
        labels=(),
        edges=edges,
        weights=draw(st.just([]) | weights),
        relations=["cites"] * len(edges) if draw(st.booleans()) else (),
        removed_edges=draw(st.lists(gone if draw(st.booleans()) else pairs, max_size=4)),
        late=draw(st.lists(st.tuples(known, some), max_size=3, unique_by=_first if once else None)),
        forgotten=draw(st.lists(known, max_size=2, unique_by=repr if once else None)),
    )


def _first(pair: tuple[Any, Any]) -> str:
    return repr(pair[0])


@given(deltas())
def test_what_is_checked_is_what_would_be_read_back(delta):
    ids, graph = grown()
    delta = Delta(**vars(delta) | {"features": torch.rand(1, len(delta.nodes)).t()})
    try:
        checked = check_delta(delta, ids, num_features=1, graph=graph)
    except EvergraphError:
        return
    back = check_delta(delta_from_bytes(delta_to_bytes(delta)), ids, num_features=1, graph=graph)
    for name, value in vars(back).items():
        ours = getattr(checked, name)
        if isinstance(value, torch.Tensor):
            assert ours.equal(value), name
            assert ours.dtype == value.dtype
            assert ours.stride() == value.stride()
        elif name == "weights":  # the rounded ones are applied
            assert len(ours) == len(value)
        elif name not in ("weighed", "key", "first", "refit", "scheme"):
            assert repr(list(ours)) == repr(list(value)), name


def test_names_of_numpy_are_applied_as_plain_ones():
    ids, graph = grown()
    delta = Delta(edges=(("a", "b"),), relations=(np.str_("cites"),))
    checked = check_delta(delta, ids, num_features=1, graph=graph)
    assert [type(name) for name in checked.relations] == [str]


def test_nodes_that_come_ahead_are_there_for_edges_and_labels():
    ids, _ = grown()
    delta = Delta(nodes=("y",), features=torch.zeros(1, 1), edges=(("x", "y"),), late=(("x", "l"),))
    with pytest.raises(LooseEdgeError, match="edge 0 joins 'x' and 'y', but node 'x' is not in"):
        check_delta(delta, ids, num_features=1)
    checked = check_delta(delta, ids, num_features=1, ahead={"x": 9})
    assert (checked.first, checked.ends.tolist()) == (10, [[9], [10]])
    assert checked.labelled.tolist() == [9]
    with pytest.raises(EvergraphError, match="node 'y' is in the graph already"):
        check_delta(delta, ids, num_features=1, ahead={"x": 9, "y": 10})


COLUMNS = st.one_of(
    st.lists(st.sampled_from(["a", "b", "c", "nobody", "\0"]), max_size=5),
    st.lists(st.integers(-2, 12) | st.just(10**12), max_size=5),
    st.lists(st.sampled_from([*KNOWN, "nobody", 5]), max_size=5),
)


@given(COLUMNS)
def test_whatever_a_column_is_kept_in_its_ids_are_found_and_written_alike(values):
    ids, _ = grown()
    said = [next((p for p, n in enumerate(["gone", *KNOWN]) if _same(n, v)), -1) for v in values]
    kept = [values, tuple(values)]
    if values and all(type(value) is int for value in values):
        kept.append(np.array(values, dtype=np.int64))
    if all(type(value) is str for value in values):
        kept.append(pa.array(values, pa.string()))
    written = {delta_to_bytes(Delta(edges=EdgeColumns(one, one))) for one in kept}
    assert len(written) == 1
    for one in kept:
        assert ids.where(one).tolist() == said
        assert EdgeColumns(one, one) == list(zip(values, values, strict=True))


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def test_many_are_found_as_few_are():
    table = IdTable()
    table.add([f"n{place}" for place in range(50)])
    table.add([10**9, 3, -1])
    texts = [f"n{place % 60}" for place in range(CODED_FROM)]
    places = [place % 60 if place % 60 < 50 else -1 for place in range(CODED_FROM)]
    assert table.where(pa.array(texts)).tolist() == table.where(texts).tolist() == places
    assert table.where([3, -1, 10**9, 4]).tolist() == [51, 52, 50, -1]
    new = {number: 60 + number for number in range(4, CODED_FROM + 4)}
    assert table.where(np.array([3, 4, CODED_FROM + 3, CODED_FROM + 4]), new).tolist() == [
        51,
        64,
        CODED_FROM + 63,
        -1,
    ]
    for wrong in (["new", "n1"], ["new", "new"]):
        with pytest.raises(DuplicateNodeError, match="is in the graph already"):
            table.add(wrong)
    assert "new" not in table
    table.remove([3])
    assert table.where([3, 10**9]).tolist() == [-1, 50]
    twin = IdTable()
    twin.restore(table.state())
    assert twin.where([3, 10**9, -1]).tolist() == [-1, 50, 52]


def test_edges_that_are_no_pairs_are_no_columns():
    assert edge_columns([("a",)]) is None
    assert edge_columns([3]) is None
    edges = EdgeColumns([1, 2, 3], ["a", "b", "c"])
    assert (edges[1:], edges[-1], edges != ()) == ([(2, "b"), (3, "c")], (3, "c"), True)
    assert isinstance(check_delta(Delta(), IdTable(), num_features=None), CheckedDelta)
    assert json.dumps(list(edges)) == '[[1, "a"], [2, "b"], [3, "c"]]'


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
IDS = TEXT | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(IDS, unique_by=lambda value: (type(value), value)), st.data())
def test_names_come_back_from_arrays_in_their_positions(names, data):
    table, twin = IdTable(), IdTable()
    table.add(names)
    gone = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    table.remove(gone)
    twin.restore(table.state())
    kept = [name for name in names if name not in gone]
    assert [*twin] == kept
    assert [type(name) for name in twin] == [type(name) for name in kept]
    assert twin.positions(kept).equal(table.positions(kept))
    for one in (table, twin):
        one.add(["\0new"] if "\0new" not in one else [])
    assert all(
        a.equal(b) for a, b in zip(table.state().values(), twin.state().values(), strict=True)
    )


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (True, "must be text or an integer, not True"),
        (1.0, "must be text or an integer, not 1.0"),
        (None, "must be text or an integer, not None"),
        (torch.tensor(1), r"must be text or an integer, not tensor\(1\)"),
        (2**63, "must fit into 64 bits"),
        ("\ud800", "must be text that UTF-8 can write"),
    ],
)
def test_what_is_no_name(value, rule):
    with pytest.raises(DataError, match=rule):
        check_id("id", value)
    assert value not in IdTable()
