"""docs/protocols.md has a section for each protocol; its tables are those of the files."""

from __future__ import annotations

from pathlib import Path

import pytest
from protocols_page import protocols_table, published_numbers, published_table

from evergraph.experiments.protocols import protocols, read_protocol
from evergraph.studies.protocols import ORDER

PAGE = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text("utf-8")


def test_the_tables_have_a_row_a_protocol_and_a_row_a_published_method() -> None:
    rows = [row[0] for row in protocols_table().texts]
    assert sorted(rows) == sorted(protocols())
    methods = {number.method for number in published_numbers() if number.setting == "class-il"}
    assert {row[0] for row in published_table("class-il").texts} == methods


@pytest.mark.parametrize("name", protocols())
def test_the_page_has_a_section_a_protocol_with_its_source(name: str) -> None:
    section = PAGE.split(f"\n### `{name}`")[1].split("\n#")[0]
    for source in read_protocol(name).source.split(", "):
        assert source in section


def test_protocols_are_those_of_the_study() -> None:
    assert sorted(ORDER) == sorted(protocols())
    # Every published number names a protocol and no cell has two.
    numbers = published_numbers()
    assert {number.protocol for number in numbers} <= protocols().keys()
    places = [(n.method, n.dataset, n.setting, n.protocol, n.source) for n in numbers]
    assert len(set(places)) == len(places) > 90
    assert all(0 < number.average_accuracy <= 100 for number in numbers)
