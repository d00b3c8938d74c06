"""What the page for operators names is there: files, commands, options, metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evergraph.cli.app import COMMANDS, _load

ROOT = Path(__file__).parents[2]
# What follows is about options that are gone.
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8").split("\n## Upgrading")[0]
CODE = re.findall(r"`([^`\n]+)`", PAGE) + re.findall(r"^    (\S.*)$", PAGE, re.MULTILINE)

NEEDED = ("check", "backup", "compact")


def test_what_it_names_is_there() -> None:
    named = {
        path
        for code in CODE
        for path in re.findall(r"\b(?:deploy|tests|benchmarks)/[\w@./-]*\w", code)
    }
    assert len(named) > 15
    assert {path for path in named if not (ROOT / path).exists()} == set()
    # Commands that it names take what it says.
    found = [code for code in CODE if re.match(r"evergraph [a-z]+ ", code)]
    assert len(found) >= 8
    for code in found:
        name, *words = code.split("#")[0].split()[1:]
        assert name in COMMANDS, code
        known = {option for parameter in _load(name).params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, code
    # Options that it names are those of serve.
    known = {option for parameter in _load("serve").params for option in parameter.opts}
    alone = {word for code in CODE if code.startswith("--") for word in code.split()}
    of_others = {"--now", "--keys", "--names", "--quick"}
    assert {word for word in alone if word.startswith("--")} <= known | of_others


@pytest.mark.parametrize("path", ["deploy/grafana.json", "deploy/prometheus-rules.yaml"])
def test_metrics_that_it_names_are_watched(path: str) -> None:
    told = {name for code in CODE for name in re.findall(r"\bevergraph_\w+", code)}
    watched = set(re.findall(r"\bevergraph_\w+", (ROOT / "deploy/grafana.json").read_text("utf-8")))
    watched |= {name.removesuffix("_bucket") for name in watched} | {"evergraph_start_time_seconds"}
    asked = set(re.findall(r"\bevergraph_\w+", (ROOT / path).read_text("utf-8")))
    assert told <= watched
    # What an alert is about can be looked up on the page.
    if path.endswith(".yaml"):
        plain = {name.removesuffix("_bucket") for name in asked}
        assert plain - told <= {"evergraph_memory"} | told
