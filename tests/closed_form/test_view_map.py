"""Features of several views: by hand, and as one would make them view by view."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form.view_map import ViewExpansion, ViewRows
from evergraph.closed_form.views import View, parse_views

KEPT, DIMS, CODE_DIMS, WIDTH = (0, 2, 4), 3, 6, 10
NAMES = ("0|2+y", "4", "0|2|4", "y", "2")


def expansion(*names: str) -> ViewExpansion:
    draw = torch.Generator().manual_seed(0)
    shapes = [(DIMS, WIDTH)] * 3 + [(CODE_DIMS, WIDTH)]
    *hops, codes = (torch.randn(shape, generator=draw) for shape in shapes)
    return ViewExpansion(parse_views(names or NAMES), KEPT, hops, codes, code_parts=2)


def rows(count: int = 7, *, seed: int = 1, coded: bool = True) -> ViewRows:
    draw = torch.Generator().manual_seed(seed)
    hops = torch.randn(count, 3 * DIMS, generator=draw)
    return ViewRows(hops, torch.randn(count, CODE_DIMS, generator=draw) if coded else None)


def test_features_by_hand() -> None:
    """Two hops of one feature: projections 2 (1, -1) and 3 (1, 2); a code: 5 (0, 1)."""
    one = ViewExpansion(
        parse_views(["0", "0|1", "1+y"]), (0, 1),
        (torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 2.0]])),
        torch.tensor([[0.0, 1.0]]), code_parts=1,
    )  # fmt: skip
    own, both, coded = one(ViewRows(torch.tensor([[2.0, 3.0]]), torch.tensor([[5.0]])))
    # √(2/m) = 1 at a width of 2; two parts are divided by √2
    assert own.tolist() == [[2.0, 0.0]]
    assert both[0].tolist() == pytest.approx([5 / 2**0.5, 4 / 2**0.5])
    assert coded[0].tolist() == pytest.approx([3 / 2**0.5, 11 / 2**0.5])


@pytest.mark.parametrize("name", NAMES)
def test_parts_side_by_side_are_one_vector_with_stacked_matrices(name: str) -> None:
    """φ(x) = √(2/m) max(0, x R), x the parts side by side and divided by √|v|."""
    view, given_rows, whole = View.parse(name), rows(), expansion()
    assert given_rows.codes is not None
    hops = dict(zip(KEPT, given_rows.hops.split(DIMS, dim=1), strict=True))
    matrices = dict(zip(KEPT, whole.matrices, strict=True))
    parts = [hops[hop] for hop in view.hops] + ([given_rows.codes] if view.codes else [])
    stacked = [matrices[hop] for hop in view.hops] + ([whole.code_matrix] if view.codes else [])
    count = len(view.hops) + 2 * view.codes  # codes are of two parts
    vector = torch.cat(parts, dim=1) / math.sqrt(count)
    expected = math.sqrt(2 / WIDTH) * (vector @ torch.cat(stacked)).relu()
    found = list(whole(given_rows))[NAMES.index(name)]
    torch.testing.assert_close(found, expected)


def test_features_of_unit_parts_have_about_unit_length() -> None:
    draw = torch.Generator().manual_seed(0)
    wide = [torch.randn(DIMS, 4096, generator=draw) for _ in KEPT]
    codes = torch.randn(CODE_DIMS, 4096, generator=draw)
    seen = rows(50)
    assert seen.codes is not None
    units = [torch.nn.functional.normalize(h, dim=1) for h in seen.hops.split(DIMS, dim=1)]
    halves = [torch.nn.functional.normalize(h, dim=1) for h in seen.codes.split(3, dim=1)]
    unit = ViewRows(torch.cat(units, dim=1), torch.cat(halves, dim=1))
    for features in ViewExpansion(parse_views(NAMES), KEPT, wide, codes, code_parts=2)(unit):
        torch.testing.assert_close(features.norm(dim=1), torch.ones(50), atol=0.1, rtol=0)


def test_only_some_views() -> None:
    every = dict(zip(parse_views(NAMES), expansion()(rows()), strict=True))
    few = parse_views(["2", "0|2+y"])
    for view, features in zip(few, expansion().only(few)(rows()), strict=True):
        torch.testing.assert_close(features, every[view])


def test_the_first_features_are_as_they_are_among_all() -> None:
    narrow = expansion().narrowed(4)
    assert narrow.width == 4
    for few, every in zip(narrow(rows()), expansion()(rows()), strict=True):
        torch.testing.assert_close(few, every[:, :4])
    for few, every in zip(narrow.narrowed(2)(rows()), expansion()(rows()), strict=True):
        torch.testing.assert_close(few, every[:, :2])


def test_without_codes_those_that_need_none() -> None:
    bare = list(expansion()(rows(coded=False)))
    plain = expansion("4", "0|2|4", "2")(rows())
    assert len(bare) == 3
    for found, expected in zip(bare, plain, strict=True):
        torch.testing.assert_close(found, expected)


def test_rows_are_not_changed() -> None:
    given_rows = rows()
    assert given_rows.codes is not None
    before = given_rows.hops.clone(), given_rows.codes.clone()
    list(expansion()(given_rows))
    assert given_rows.hops.equal(before[0])
    assert given_rows.codes.equal(before[1])


@settings(max_examples=20, deadline=None)
@given(nodes=st.lists(st.integers(0, 6), max_size=12), size=st.integers(1, 5))
def test_rows_are_looked_up_in_parts(nodes: list[int], size: int) -> None:
    seen = rows()
    asked = ViewRows(seen.hops, seen.codes, torch.tensor(nodes, dtype=torch.int64))
    parts = list(asked.split(size))
    assert sum(len(part) for part in parts) == len(nodes)
    assert all(len(part) == size for part in parts[:-1])
    for place, features in enumerate(zip(*map(expansion(), parts), strict=True)):
        expected = list(expansion()(seen))[place][nodes]
        torch.testing.assert_close(torch.cat(features), expected)


def test_all_rows_are_cut_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evergraph.closed_form.view_map.BLOCK_VALUES", 3 * WIDTH)
    blocks = list(expansion().blocks(rows()))
    assert [len(block) for block in blocks] == [3, 3, 1]
    assert torch.cat([block.hops for block in blocks]).equal(rows().hops)
    codes: list[Tensor] = [block.codes for block in blocks if block.codes is not None]
    assert torch.cat(codes).equal(rows().codes)
