"""docs/parts.md names every registered part and every parameter that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evergraph.core.resolver import Resolver
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.topology import topologies

PAGE = Path(__file__).parents[2] / "docs" / "parts.md"
EVERY_METHOD = {"backbone", "trainer", "generator"}


@pytest.mark.parametrize(
    ("title", "resolver"),
    [
        ("Topologies", topologies),
        ("Samplers", samplers),
        ("Backbones", backbones),
        ("Methods", methods),
    ],
)
def test_the_page_lists_every_part_with_its_parameters(title: str, resolver: Resolver[Any]) -> None:
    section = PAGE.read_text("utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = {line.split("`")[1]: line for line in section.splitlines() if line.startswith("| [`")}
    assert set(rows) == set(resolver.names())
    for name, row in rows.items():
        for parameter in set(resolver.parameters(name)) - EVERY_METHOD:
            assert f"`{parameter}`" in row, (name, parameter)
