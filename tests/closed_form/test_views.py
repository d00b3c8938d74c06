"""Ways to look at a node: names, and what is no name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form.views import View, hops_of, parse_views
from evergraph.core.errors import ConfigurationError

hops = st.lists(st.integers(0, 99), max_size=5).map(tuple)
views = st.builds(View, hops, st.booleans()).filter(lambda view: view.hops or view.codes)


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("0", View((0,))),
        ("12", View((12,))),
        ("0|2", View((0, 2))),
        ("0|1|2|4+y", View((0, 1, 2, 4), codes=True)),
        ("0|2|s+y", View((0, 2), codes=True, shaped=True)),
        ("y", View((), codes=True)),
    ],
)
def test_a_name_says_which_hops_and_whether_labels(name: str, view: View) -> None:
    assert View.parse(name) == view
    assert str(view) == name


@given(views)
def test_a_view_is_read_from_what_it_is_written_as(view: View) -> None:
    assert View.parse(str(view)) == view


@pytest.mark.parametrize(
    "name", ["", "+y", "0+", "0|", "|2", "0+2", "0|y", "y+y", "-1", "0 | 2", "x", "1.0", 2, None]
)
def test_what_is_no_view_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="a view must be hops joined by") as refused:
        View.parse(name)
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("0|2", "views must be a list of at least one view, not '0|2'"),
        ([], "views must be a list of at least one view, not "),
        (["2", "y", "2"], "views"),
    ],
)
def test_lists_that_make_no_sense_are_refused(names: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_views(names)
    assert message in str(refused.value)


@given(st.lists(views, min_size=1, unique=True))
def test_hops_are_those_of_any_view_each_once(several: list[View]) -> None:
    parsed = parse_views([str(view) for view in several])
    assert parsed == tuple(several)
    found = hops_of(parsed)
    assert list(found) == sorted(set(found))
    assert set(found) == {hop for view in several for hop in view.hops}
