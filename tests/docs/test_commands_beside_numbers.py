"""A command beside a number gives that number: small ones here, others in ``make test-slow``."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/notebooks").glob("*.md")]
LISTED = tomllib.loads(Path(__file__).with_name("commands_beside_numbers.toml").read_text("utf-8"))
BESIDE: list[dict[str, Any]] = LISTED["beside"]
NOT_RUN = {command for commands in LISTED["not_run"].values() for command in commands}
ROUNDED = 0.0501  # points: one decimal is printed
GRAPHS = {"computers": "amazon_computers", "coauthor-cs": "coauthor_cs"}
FIGURES = {
    "AA": ("average_accuracy", "{}", "balanced"),
    "AF": ("average_forgetting", "{}", "balanced"),
    "AAA": ("anytime_accuracy", "{}", "balanced"),
    "ECE": ("measures", "{}", "calibration_error"),
    "AUROC": ("measures", "{}", "rejection_auroc"),
}
_COMMAND = re.compile(
    r"(?:\$ )?((?:evergraph (?:run|bench|compare|report|reproduce)|python benchmarks/)[^#]*)"
)
# Not the parts of a version or an option, nor what took so long or so much.
_NUMBER = re.compile(r"(?<![\w.=-])-?\d+\.\d+(?![\w.]*\d)(?! ?(?:s|ms|kB|MB|GB)\b)")


def commands_in(section: str) -> Iterator[str]:
    """Yield the commands of a section, in blocks of code and among the words."""
    text = section.replace("\\\n", " ")
    inline = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    blocks = [line for line in text.splitlines() if line.startswith(("    ", "$ ", "evergraph "))]
    for code in (*blocks, *inline):
        if found := _COMMAND.match(" ".join(code.split())):
            yield found[1].strip()


def numbers_in(text: str, *, deviations: bool = True) -> list[float]:
    """Return the numbers of a text.

    >>> numbers_in("| `tem` | **84.0** ± 0.3 / -11.2 | 1.7 s |")
    [84.0, 0.3, -11.2]
    """
    if not deviations:
        text = re.sub(r"± \d+\.\d+", "", text)
    return [float(number) for number in _NUMBER.findall(text)]


def is_covered(page: str, command: str) -> bool:
    written = {
        each
        for entry in BESIDE
        if entry["file"] == page
        for each in (entry.get("written", entry["command"]), *entry.get("first", ()))
    }
    return command in written | NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_beside_a_number_is_listed(page):
    name = str(page.relative_to(ROOT))
    for section in sections(page).values():
        found = list(commands_in(section))
        prose = re.sub(r"```python.*?```", "", section, flags=re.DOTALL)  # which is run elsewhere
        others = [line for line in prose.splitlines() if not _COMMAND.match(line.strip())]
        if numbers_in("\n".join(others)):
            missing = [command for command in found if not is_covered(name, command)]
            assert not missing, f"list them in commands_beside_numbers.toml: {missing}"


def sections(page: Path) -> dict[str, str]:
    parts = re.split(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))


def rows_of(entry: dict[str, Any]) -> list[str]:
    """Return the lines beside a command, all that hold one of its rows."""
    page = ROOT / entry["file"]
    text = sections(page)[entry["section"]] if "section" in entry else page.read_text("utf-8")
    lines = re.sub(r",\n    ", ", ", text).splitlines()  # a sentence on two lines
    found = [[line for line in lines if row in line] for row in entry["rows"]]
    assert all(found), f"{page}: not all of these are there: {entry['rows']}"
    beside = [line for lines in found for line in lines]
    if "cells" not in entry:
        return beside
    return [" | ".join(line.split("|")[cell] for cell in entry["cells"]) for line in beside]


@pytest.mark.parametrize("entry", BESIDE, ids=lambda entry: entry["command"])
def test_what_is_listed_is_on_its_page(entry):
    text = (ROOT / entry["file"]).read_text("utf-8").replace("\\\n", " ")
    assert entry.get("written", entry["command"]) in " ".join(text.split())
    assert entry["size"] in ("small", "slow")
    for line in rows_of(entry):
        found = numbers_in(line, deviations="of" not in entry)
        assert len(found) == len(entry["of"]) if "of" in entry else found


@pytest.fixture
def printed(
    tmp_path: Path,
    real: Callable[[str], Path],
    call: Callable[..., tuple[str, str]],
    learned_here: None,
    undrawn: None,
) -> Callable[[str], str]:
    """Run a command of a page in a folder of its own, and return what it prints."""

    def run(command: str) -> str:
        words = shlex.split(command)
        graphs = [str(real(GRAPHS[word])) if word in GRAPHS else word for word in words]
        if words[0] == "evergraph":
            return "".join(call(*graphs[1:]))  # progress is told on stderr
        done = subprocess.run(
            [sys.executable, str(ROOT / words[1]), *graphs[2:]],
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "200"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


def check(entry: dict[str, Any], printed: Callable[[str], str]) -> None:
    within = entry.get("within", ROUNDED)
    if "of" in entry:
        result = json.loads(printed(f"{entry['command']} --json --out out").splitlines()[0])
        found = [figure(result, name) for name in entry["of"]]
        (row,) = rows_of(entry)
        wanted = numbers_in(row, deviations=False)
        assert found == pytest.approx(wanted, abs=within), dict(
            zip(entry["of"], found, strict=True)
        )
        return
    said = "".join(printed(command) for command in (*entry.get("first", ()), entry["command"]))
    told = numbers_in(said)
    for line in rows_of(entry):
        for wanted in numbers_in(line):
            nearest = min(abs(number - wanted) for number in told)
            assert nearest <= within, f"{wanted} is not what {entry['command']} gives: {line}"


def figure(result: dict[str, Any], name: str) -> float:
    """Return a figure of a run in percent, such as ``AA local``."""
    short, testing = name.split()
    for key in FIGURES[short]:
        result = result[key.format(testing)]
    return 100 * float(result["mean"])


def of_size(size: str) -> pytest.MarkDecorator:
    chosen = [entry for entry in BESIDE if entry["size"] == size]
    names = [f"{entry['file']} {entry['command']}" for entry in chosen]
    return pytest.mark.parametrize("entry", chosen, ids=names)


@of_size("small")
def test_small_commands_give_their_numbers(entry, printed):
    check(entry, printed)


@pytest.mark.slow
@of_size("slow")
def test_commands_give_their_numbers(entry, printed):
    check(entry, printed)
