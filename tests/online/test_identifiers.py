"""Names keep their positions, and come back from arrays as they were."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.online.identifiers import IdTable, check_id

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
IDS = TEXT | st.integers(-(2**63), 2**63 - 1)


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
