"""The small picture of a notebook, point by point."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from evergraph.core.display import MARKED, line_chart


def test_points_lie_where_they_should() -> None:
    # The frame: x from 44 to 292, y from 10 (100 %) to 120 (0 %).
    chart = line_chart({"local": [(1, 1.0), (2, 0.5), (3, 0.0)]}, x="tasks", y="accuracy")
    assert 'points="44.0,10.0 168.0,65.0 292.0,120.0"' in chart
    ElementTree.fromstring(chart)  # well-formed


def test_values_beyond_the_frame_lie_on_its_border() -> None:
    chart = line_chart({"r2": [(1, -3.0), (2, 1.5)]}, x="tasks", y="R²")
    assert 'points="44.0,120.0 292.0,10.0"' in chart


def test_a_single_point_is_in_the_middle_and_none_is_an_empty_frame() -> None:
    assert 'cx="168.0" cy="65.0"' in line_chart({"a": [(7, 0.5)]}, x="x", y="y")
    assert "polyline" not in line_chart({"a": []}, x="x", y="y")


def test_names_of_lines_that_end_together_stand_below_each_other() -> None:
    chart = line_chart({"a": [(1, 0.5)], "b": [(1, 0.5)], "c": [(1, 1.0)]}, x="x", y="y")
    heights = dict(
        re.findall(r'y="([\d.]+)" text-anchor="start" fill="currentColor">([abc])<', chart)
    )
    assert {name: float(at) for at, name in heights.items()} == {"c": 14, "a": 69, "b": 81}


def test_long_lines_have_a_mark_at_their_end_only() -> None:
    long = [(float(n), 0.5) for n in range(MARKED + 1)]
    assert line_chart({"a": long}, x="x", y="y").count("<circle") == 1
    assert line_chart({"a": long[1:]}, x="x", y="y").count("<circle") == MARKED


def test_names_are_escaped_and_text_has_the_colour_of_the_page() -> None:
    chart = line_chart({"<script>": [(1, 1.0)]}, x="a & b", y='"quoted"')
    assert "<script>" not in chart
    ElementTree.fromstring(chart)
    assert set(re.findall(r'<text [^>]*fill="([^"]*)"', chart)) == {"currentColor"}
