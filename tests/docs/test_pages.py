"""Pages can be found, name every registered part, and show what files and results say."""

import re
from pathlib import Path

import pytest
import typer
from protocols_page import protocols_table, published_numbers, published_table
from reference_pages import names_page, parts_page

import evergraph as eg
from evergraph.cli.app import COMMANDS, _load, app
from evergraph.experiments.presets import protocols, read_protocol
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from evergraph.server.app import create_app
from evergraph.server.bodies import DeltaBody
from evergraph.studies.protocols import ORDER
from evergraph.topology import topologies

DOCS = Path(__file__).parents[2] / "docs"


def test_the_menu_the_first_page_and_the_index_of_decisions_list_every_page():
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
    return list((DOCS / "decisions").glob("[0-9]*.md"))


def test_a_decision_says_what_it_is_and_when_it_was_made():
    for path in decided():
        title, blank, status, *_ = path.read_text("utf-8").splitlines()
        assert title.startswith(f"# {int(path.name[:4])}. ")
        assert blank == ""
        found = re.fullmatch(r"\*(.*)\* · 2\d{3}-\d\d-\d\d", status)
        assert found is not None, path.name
        assert re.fullmatch(r"Accepted(, amended by \d+)?", found[1]), path.name


@pytest.mark.parametrize("resolver", [methods, samplers, topologies, backbones])
def test_every_registered_part_has_one_entry_in_the_reference(resolver):
    pages = [path.read_text("utf-8") for path in DOCS.glob("reference/*.md")]
    lines = [line for text in (*pages, parts_page()) for line in text.splitlines()]
    parts = [resolver.resolve(name) for name in resolver.names()]
    entries = [f"::: {part.__module__}.{part.__qualname__}" for part in parts]
    assert [entry for entry in entries if lines.count(entry) != 1] == []


def test_the_generated_pages_have_every_part_name_command_and_route():
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


def test_every_command_in_the_pages_takes_the_options_it_is_given():
    group = typer.main.get_command(app)
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


README = Path(__file__).parents[2] / "README.md"


def test_the_first_example_prints_what_its_comments_say(capsys):
    code = README.read_text("utf-8").split("```python\n")[1].split("```")[0]
    assert ">>>" not in code  # it is copied from pages that strip no prompts
    exec(compile(code, "README.md", "exec"), {})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert said == ["art", "art music chess"]
    assert capsys.readouterr().out.splitlines() == said


ROOT = Path(__file__).parents[2]
# What follows is about options that are gone.
RUNNING = (ROOT / "docs" / "operations.md").read_text("utf-8").split("\n## What is stable")[0]
CODE = re.findall(r"`([^`\n]+)`", RUNNING) + re.findall(r"^    (\S.*)$", RUNNING, re.MULTILINE)


def test_the_operations_page_names_files_commands_and_options_that_exist():
    named = {
        path
        for code in CODE
        for path in re.findall(r"\b(?:deploy|tests|benchmarks)/[\w@./-]*\w", code)
    }
    assert len(named) > 15
    assert {path for path in named if not (ROOT / path).exists()} == set()
    # Options that it names are those of serve.
    known = {option for parameter in _load("serve").params for option in parameter.opts}
    alone = {word for code in CODE if code.startswith("--") for word in code.split()}
    of_others = {"--now", "--keys", "--quick"}
    assert {word for word in alone if word.startswith("--")} <= known | of_others


@pytest.mark.parametrize("path", ["deploy/grafana.json", "deploy/prometheus-rules.yaml"])
def test_metrics_of_the_operations_page_are_watched(path):
    told = {name for code in CODE for name in re.findall(r"\bevergraph_\w+", code)}
    watched = set(re.findall(r"\bevergraph_\w+", (ROOT / "deploy/grafana.json").read_text("utf-8")))
    watched |= {name.removesuffix("_bucket") for name in watched} | {"evergraph_start_time_seconds"}
    asked = set(re.findall(r"\bevergraph_\w+", (ROOT / path).read_text("utf-8")))
    assert told <= watched
    # What an alert is about can be looked up on the page.
    if path.endswith(".yaml"):
        plain = {name.removesuffix("_bucket") for name in asked}
        assert plain - told <= {"evergraph_memory"} | told


SERVICE = (DOCS / "service.md").read_text("utf-8")
OTHERS = "".join(
    (DOCS / f"{name}.md").read_text("utf-8") for name in ("operations", "live-in-depth")
)


def test_every_route_is_on_the_service_page(tmp_path):
    folder = LearnerFolder.open(tmp_path / "learner", make=OnlineLearner)
    described = create_app(folder).openapi()["paths"]
    folder.close()
    routes = {
        f"{method.upper()} {path.replace('{node}', '{id}')}"
        for path, methods in described.items()
        for method in methods
    }
    named = {
        found.split("?")[0] for found in re.findall(r"`((?:GET|POST|DELETE) /[^`]*)`", SERVICE)
    }
    assert len(routes) > 15
    assert routes <= named
    assert named - routes == {"GET /", "GET /docs", "GET /openapi.json"}


def test_fields_and_options_are_on_the_pages():
    table = SERVICE.split("### A delta")[1].split("### Arrow")[0]
    assert {name for name in DeltaBody.model_fields if f"`{name}`" not in table} == set()
    # Every option of serve is on some page.
    options = {each for parameter in _load("serve").params for each in parameter.opts}
    assert {each for each in options if each not in SERVICE + OTHERS} <= {"--help"}


PROTOCOLS = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text("utf-8")


def test_the_tables_have_a_row_a_protocol_and_a_row_a_published_method():
    rows = [row[0] for row in protocols_table().texts]
    assert sorted(rows) == sorted(protocols())
    methods = {number.method for number in published_numbers() if number.setting == "class-il"}
    assert {row[0] for row in published_table("class-il").texts} == methods


@pytest.mark.parametrize("name", protocols())
def test_the_page_has_a_section_a_protocol_with_its_source(name):
    section = PROTOCOLS.split(f"\n### `{name}`")[1].split("\n#")[0]
    for source in read_protocol(name).source.split(", "):
        assert source in section


def test_protocols_are_those_of_the_study():
    assert sorted(ORDER) == sorted(protocols())
    # Every published number names a protocol and no cell has two.
    numbers = published_numbers()
    assert {number.protocol for number in numbers} <= protocols().keys()
    places = [(n.method, n.dataset, n.setting, n.protocol, n.source) for n in numbers]
    assert len(set(places)) == len(places) > 90
    assert all(0 < number.average_accuracy <= 100 for number in numbers)
