"""Figures: drawn for any shape of results, and fit to stand in one page."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evergraph.reports import collect
from evergraph.reports.figures.learning import mean_matrix
from evergraph.reports.figures.picture import Box, looks_of, place_labels, spread_apart
from evergraph.reports.page.sections import inline_svg
from evergraph.reports.runs import grouped


def test_every_group_and_every_run_is_drawn(drawn: dict[str, Any]) -> None:
    assert {kind: len(pictures) for kind, pictures in drawn.items()} == {
        "curves": 3, "local-global": 3, "time": 3, "matrices": 5, "ranks": 0,
        "memory-accuracy": 6,  # local and global
    }  # fmt: skip
    pictures = [picture for kind in drawn.values() for picture in kind]
    assert len({picture.name for picture in pictures}) == len(pictures)
    for picture in pictures:
        assert picture.png.startswith(b"\x89PNG")
        assert picture.svg.startswith("<?xml")


def test_inline_figures_share_no_id_and_fetch_nothing(drawn: dict[str, Any]) -> None:
    pictures = [picture for kind in drawn.values() for picture in kind]
    texts = [inline_svg(picture, f"f{i}-") for i, picture in enumerate(pictures)]
    ids = [name for text in texts for name in re.findall(r' id="([^"]+)"', text)]
    assert len(set(ids)) == len(ids)
    for text in texts:
        used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
        assert used <= set(re.findall(r' id="([^"]+)"', text))
        assert "http" not in text
        assert text.startswith("<svg viewBox=")


def test_looks_and_matrices(bench: Path) -> None:
    entry = grouped(collect(bench), bench)[1].entries[1]
    np.testing.assert_allclose(mean_matrix(entry, "local"), [[50, np.nan], [50, 25]])
    # Many methods all look different.
    looks = looks_of([str(i) for i in range(56)])
    assert len(set(looks.values())) == 56


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_labels_keep_their_distance_and_their_order(wanted: list[float]) -> None:
    places = spread_apart(wanted, gap=3.0, low=0.0, high=100.0)
    assert -1e-6 <= min(places) <= max(places) <= 100 + 1e-6
    for (a, b), (x, y) in zip(combinations(places, 2), combinations(wanted, 2), strict=True):
        assert abs(a - b) >= 3.0 - 1e-6
        assert x == y or (a < b) == (x < y)


def test_labels_of_near_points_do_not_overlap() -> None:
    points = [(100.0 + i, 100.0) for i in range(6)]
    boxes = place_labels(points, ["a-method"] * 6, Box(150, 100, 300, 200), 8)
    assert all(a.overlap(b) == 0 for a, b in combinations(boxes, 2))
