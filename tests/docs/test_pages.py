"""Every page can be found from the first one, and every registered part in the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evergraph.core.resolver import Resolver
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.topology import topologies

DOCS = Path(__file__).parents[2] / "docs"


def test_the_first_page_lists_every_page() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    pages = [*DOCS.glob("*.md"), *DOCS.glob("reference/*.md")]
    names = {path.relative_to(DOCS).as_posix() for path in pages} - {"index.md"}
    assert len(names) > 25
    assert {name for name in names if f"({name})" not in index} == set()


@pytest.mark.parametrize("folder", ["results", "decisions", "notebooks"])
def test_a_folders_index_lists_its_pages(folder: str) -> None:
    index = (DOCS / folder / "index.md").read_text("utf-8")
    names = {path.name for path in (DOCS / folder).glob("*.md")} - {"index.md"}
    assert {name for name in names if f"({name})" not in index} == set()


@pytest.mark.parametrize(
    ("page", "resolver"),
    [
        ("methods", methods),
        ("memory", samplers),
        ("topology", topologies),
        ("nn closed_form", backbones),
    ],
)
def test_every_registered_part_has_a_heading_of_its_own(page: str, resolver: Resolver[Any]) -> None:
    pages = [DOCS / "reference" / f"{each}.md" for each in page.split()]
    lines = [line for each in pages for line in each.read_text("utf-8").splitlines()]
    parts = [resolver.resolve(name) for name in resolver.names()]
    wanted = {f"::: {part.__module__}.{part.__qualname__}" for part in parts}
    assert wanted - set(lines) == set()
