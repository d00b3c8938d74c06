"""Names keep their positions, and come back from arrays as they were."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError, DuplicateNodeError, UnknownNodeError
from evergraph.online.identifiers import IdTable, check_id

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
IDS = TEXT | st.integers(-(2**63), 2**63 - 1)


def test_text_and_number_are_two_names():
    table = IdTable()
    table.add([1, "1"])
    assert table.positions(["1", 1]).tolist() == [1, 0]


def test_a_position_is_never_used_again():
    table = IdTable()
    table.add(["a", "b"])
    table.remove(["a"])
    table.add(["a"])
    assert table.position("a") == 2
    assert table.at(1) == "b"
    assert [*table] == ["b", "a"]


def test_unknown_and_known_names_are_refused():
    table = IdTable()
    table.add(["a"])
    with pytest.raises(UnknownNodeError, match="node 'b' is not in the graph"):
        table.positions(["a", "b"])
    with pytest.raises(DuplicateNodeError, match="node 'a' is in the graph already"):
        table.add(["a"])


def test_names_about_to_be_added_are_found():
    table = IdTable()
    table.add(["a"])
    assert table.positions(["b", "a"], new={"b": 9}).tolist() == [9, 0]


@given(st.lists(IDS, unique_by=lambda value: (type(value), value)), st.data())
def test_round_trip(names, data):
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
