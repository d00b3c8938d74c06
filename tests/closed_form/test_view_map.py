"""Views of a node: their names, and their features, by hand and view by view."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import CODES, RELATIONS, View, ViewRows, hops_of, parse_views
from evergraph.core.errors import ConfigurationError
from view_rows import view_rows

KEPT, DIMS, CODE_DIMS, WIDTH = (0, 2, 4), 3, 6, 10
NAMES = ("0|2+y", "4", "0|2|4", "y", "2")


def expansion(*names: str, width: int = WIDTH) -> RandomMap:
    sizes = dict.fromkeys(KEPT, DIMS) | {CODES: CODE_DIMS}
    return RandomMap.drawn(parse_views(names or NAMES), sizes, width=width, seed=0)


def rows(count: int = 7, *, seed: int = 1, coded: bool = True) -> ViewRows:
    draw = torch.Generator().manual_seed(seed)
    hops = torch.randn(count, 3 * DIMS, generator=draw)
    codes = torch.randn(count, CODE_DIMS, generator=draw) if coded else None
    return view_rows(hops, codes, kept=KEPT)


def test_features_by_hand():
    """Two hops of one feature: projections 2 (1, -1) and 3 (1, 2); a code: 5 (0, 1)."""
    matrices = {0: [[1.0, -1.0]], 1: [[1.0, 2.0]], CODES: [[0.0, 1.0]]}
    one = RandomMap(
        parse_views(["0", "0|1", "1+y"]),
        {part: torch.tensor(rows) for part, rows in matrices.items()},
    )
    own, both, coded = one(
        view_rows(torch.tensor([[2.0, 3.0]]), torch.tensor([[5.0]]), kept=(0, 1))
    )
    # √(2/m) = 1 at a width of 2; two parts are divided by √2, codes are two
    assert own.tolist() == [[2.0, 0.0]]
    assert both[0].tolist() == pytest.approx([5 / 2**0.5, 4 / 2**0.5])
    assert coded[0].tolist() == pytest.approx([3 / 3**0.5, 11 / 3**0.5])


def test_some_views_and_the_first_features_are_as_they_are_among_all():
    seen = rows()
    every = dict(zip(parse_views(NAMES), expansion()(seen), strict=True))
    few = parse_views(["2", "0|2+y"])
    for view, features in zip(few, replace(expansion(), views=tuple(few))(seen), strict=True):
        torch.testing.assert_close(features, every[view])
    narrow = expansion().narrowed(4)
    assert narrow.width == 4
    for first, two, wide in zip(
        narrow(seen), narrow.narrowed(2)(seen), every.values(), strict=True
    ):
        torch.testing.assert_close(first, wide[:, :4])
        torch.testing.assert_close(two, wide[:, :2])
    assert seen.hops.equal(rows().hops)  # rows are not changed
    assert seen.codes.equal(rows().codes)


def test_without_codes_those_that_need_none():
    bare = list(expansion()(rows(coded=False)))
    plain = expansion("4", "0|2|4", "2")(rows())
    assert len(bare) == 3
    for found, expected in zip(bare, plain, strict=True):
        torch.testing.assert_close(found, expected)


@given(nodes=st.lists(st.integers(0, 6), max_size=12), size=st.integers(1, 5))
def test_rows_are_looked_up_in_parts(nodes, size):
    seen = rows()
    asked = seen.of(torch.tensor(nodes, dtype=torch.int64))
    parts = [asked[start : start + size] for start in range(0, max(len(nodes), 1), size)]
    for place, features in enumerate(zip(*map(expansion(), parts), strict=True)):
        expected = list(expansion()(seen))[place][nodes]
        torch.testing.assert_close(torch.cat(features), expected)


def test_all_rows_are_cut_in_order(monkeypatch):
    monkeypatch.setattr("evergraph.closed_form.view_map.BLOCK_VALUES", 3 * WIDTH)
    blocks = list(expansion().blocks(rows()))
    assert [len(block) for block in blocks] == [3, 3, 1]
    assert torch.cat([block.hops for block in blocks]).equal(rows().hops)
    codes = [block.codes for block in blocks if block.codes is not None]
    assert torch.cat(codes).equal(rows().codes)


def test_parts_in_one_vector_have_the_features_of_rows():
    """Live vectors hold parts side by side, class codes last."""
    seen, whole = rows(), expansion()
    assert seen.codes is not None
    found = whole.of_vectors(torch.cat([seen.hops, seen.codes], dim=1))
    for features, expected in zip(found, whole(seen), strict=True):
        torch.testing.assert_close(features, expected)
    assert whole.places[CODES] == (3 * DIMS, 3 * DIMS + CODE_DIMS)


def test_parts_that_are_not_there_are_not_needed():
    """A view with relations is one without where a graph has none."""
    view = View.parse("0|2|r+y")
    assert expansion().needed(view) == (0, 2, CODES)
    related = RandomMap.drawn([view], {0: 2, 2: 2, CODES: 2, RELATIONS: 4}, width=4, seed=0)
    assert related.needed(view) == (0, 2, RELATIONS, CODES)
    assert related.scale(view) == pytest.approx(math.sqrt(2 / (4 * 7)))  # 2 hops, 3, and 2 codes


def test_rows_are_joined_with_the_words_that_both_have():
    one, two = (
        view_rows(torch.tensor([[value]]), words=csr_matrix([[0.0, value]])) for value in (1.0, 2.0)
    )
    both = one.joined(two)
    assert both.hops.tolist() == [[1.0], [2.0]]
    assert both.words.toarray().tolist() == [[0.0, 1.0], [0.0, 2.0]]
    assert one.joined(view_rows(torch.ones(1, 1))).words is None


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
def test_a_name_says_which_hops_and_whether_labels(name, view):
    assert View.parse(name) == view
    assert str(view) == name


@given(views)
def test_a_view_is_read_from_what_it_is_written_as(view):
    assert View.parse(str(view)) == view


@pytest.mark.parametrize(
    "name", ["", "+y", "0+", "0|", "|2", "0+2", "0|y", "y+y", "-1", "0 | 2", "x", "1.0", 2, None]
)
def test_what_is_no_view_is_refused(name):
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
def test_lists_that_make_no_sense_are_refused(names, message):
    with pytest.raises(ConfigurationError) as refused:
        parse_views(names)
    assert message in str(refused.value)


@given(st.lists(views, min_size=1, unique=True))
def test_hops_are_those_of_any_view_each_once(several):
    parsed = parse_views([str(view) for view in several])
    assert parsed == tuple(several)
    found = hops_of(parsed)
    assert list(found) == sorted(set(found))
    assert set(found) == {hop for view in several for hop in view.hops}
