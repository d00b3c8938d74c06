"""Pages can be found, name every registered part, and show what files and results say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from reference_pages import names_page, parts_page

import evergraph as eg
from evergraph.cli.app import COMMANDS, app
from evergraph.core.resolver import Resolver
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.topology import topologies

DOCS = Path(__file__).parents[2] / "docs"


def test_the_menu_the_first_page_and_the_index_of_decisions_list_every_page() -> None:
    index, decisions = (DOCS / name for name in ("index.md", "decisions/index.md"))
    menu = (DOCS.parent / "mkdocs.yml").read_text("utf-8")
    pages = [*DOCS.glob("*.md"), *DOCS.glob("reference/*.md"), *DOCS.glob("notebooks/*.md")]
    names = {path.relative_to(DOCS).as_posix() for path in pages}
    assert len(names) > 25
    assert {name for name in names if f"- {name}" not in menu} == set()
    first = set(re.findall(r"^      - ([\w-]+\.md)$", menu, re.MULTILINE)) - {"index.md"}
    assert len(first) > 10
    made = {path.relative_to(decisions.parent).as_posix() for path in decided()}
    for page, listed in ((index, first), (decisions, made)):
        text = page.read_text("utf-8")
        assert {name for name in listed if f"({name})" not in text} == set()


def decided() -> list[Path]:
    return list((DOCS / "decisions").rglob("[0-9]*.md"))


def test_a_decision_says_what_it_is_and_when_it_was_made() -> None:
    for path in decided():
        title, blank, status, *_ = path.read_text("utf-8").splitlines()
        assert title.startswith(f"# {int(path.name[:4])}. ")
        assert blank == ""
        found = re.fullmatch(r"\*(.*)\* · 2\d{3}-\d\d-\d\d", status)
        assert found is not None, path.name
        living = r"Accepted(, amended by \d+)?"
        allowed = living if path.parent.name == "decisions" else r"Superseded by \d+|Archived: .+"
        assert re.fullmatch(allowed, found[1]), path.name


@pytest.mark.parametrize(
    ("page", "resolver"),
    [("methods", methods), ("memory", samplers), ("topology", topologies),
     ("nn closed_form", backbones)],
)  # fmt: skip
def test_every_registered_part_has_a_heading_of_its_own(page: str, resolver: Resolver[Any]) -> None:
    pages = [DOCS / "reference" / f"{each}.md" for each in page.split()]
    lines = [line for each in pages for line in each.read_text("utf-8").splitlines()]
    parts = [resolver.resolve(name) for name in resolver.names()]
    wanted = {f"::: {part.__module__}.{part.__qualname__}" for part in parts}
    assert wanted - set(lines) == set()


def test_the_generated_pages_have_every_part_name_command_and_route() -> None:
    names = names_page()
    parts = {part.split("\n")[0]: part for part in parts_page().split("\n## ")}
    kinds = {"Topologies": topologies, "Samplers": samplers, "Backbones": backbones}
    for title, resolver in {**kinds, "Methods": methods}.items():
        lines = parts[title].splitlines()
        for name in resolver.names():
            row = next(line for line in lines if line.startswith(f"| [`{name}`]"))
            given = set(resolver.parameters(name)) - {"backbone", "trainer", "generator"}
            assert {each for each in given if f"`{each}` " not in row} == set()
    for name in set(eg.__all__):
        assert f"`{name}`" in names or f"`evergraph.{name}`" in names
    for command in COMMANDS:
        assert f"### `evergraph {command}`" in names
    assert "| `POST /v1/predictions` |" in names


def test_every_command_in_the_pages_takes_the_options_it_is_given() -> None:
    group: Any = typer.main.get_command(app)
    taken = {
        name: {option for each in group.get_command(None, name).params for option in each.opts}
        for name in COMMANDS
    }
    written = re.compile(rf"evergraph ({'|'.join(COMMANDS)})\b([^\n`|;&#]*)")
    found = 0
    for page in (DOCS.parent / "README.md", *DOCS.rglob("*.md"), *DOCS.parent.glob("deploy/*")):
        for command, rest in written.findall(page.read_text("utf-8").replace("\\\n", " ")):
            found += 1
            given = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", rest)) - {"--help"}
            assert given <= taken[command], (page.name, command, rest)
    assert found > 100


def test_the_page_of_methods_has_a_row_for_each() -> None:
    text = (DOCS / "methods.md").read_text("utf-8")
    assert [name for name in methods.names() if f"| [`{name}`](" not in text] == []


README = Path(__file__).parents[2] / "README.md"


def test_the_first_example_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    code = README.read_text("utf-8").split("```python\n")[1].split("```")[0]
    assert ">>>" not in code  # it is copied from pages that strip no prompts
    exec(compile(code, "README.md", "exec"), {})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert said == ["art", "art music chess"]
    assert capsys.readouterr().out.splitlines() == said
