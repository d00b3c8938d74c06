"""Pages can be found, name every registered part, and show what files and results say."""

from __future__ import annotations

import re
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


README = Path(__file__).parents[2] / "README.md"


def test_the_first_example_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    code = README.read_text("utf-8").split("```python\n")[1].split("```")[0]
    assert ">>>" not in code  # it is copied from pages that strip no prompts
    exec(compile(code, "README.md", "exec"), {})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert said == ["art", "art music chess"]
    assert capsys.readouterr().out.splitlines() == said
