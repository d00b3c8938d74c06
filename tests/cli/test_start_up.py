"""What a command imports, which is most of what it costs: no clock is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from evergraph.cli.commands import COMMANDS
from evergraph.core.resolver import declared_summary, first_line
from evergraph.datasets import datasets
from evergraph.datasets.catalogue import catalogue
from evergraph.memory.samplers import samplers
from evergraph.methods import Finetune, methods
from evergraph.nn import backbones
from evergraph.topology import topologies

Call = Callable[..., tuple[str, str]]

EXTRAS = {"torch_geometric", "matplotlib", "pyarrow", "pandas", "ogb", "ray", "fastapi", "sklearn"}
HEAVY = EXTRAS | {"torch", "numpy", "scipy", "numba", "psutil", "safetensors"}
TINY = [
    "run", "--dataset", "synthetic", "--set", "dataset.nodes=60", "--set", "dataset.classes=4",
    "--epochs", "1", "--device", "cpu", "--out", "out",
]  # fmt: skip


def imported(code: str, folder: Path) -> set[str]:
    """Return which packages a fresh process has imported when it has run some code."""
    tail = "\nimport sys; print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code + tail], cwd=folder, check=True, capture_output=True, text=True
    )
    return set(done.stdout.splitlines()[-1].split())


def called(*arguments: str) -> str:
    return (
        f"import sys; sys.argv = ['evergraph', *{list(arguments)}]\n"
        "from evergraph.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
    )


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import evergraph", HEAVY | {"pydantic", "rich", "typer"}),
        (called("--help"), HEAVY | {"pydantic", "rich", "markdown_it", "pygments"}),
        (called(), HEAVY | {"markdown_it", "pygments"}),
        (called("list", "methods"), HEAVY | {"markdown_it"}),
        (called("list", "datasets", "--json"), HEAVY | {"rich", "markdown_it"}),
        (called("list", "presets"), HEAVY | {"markdown_it"}),
        (called("info", "synthetic"), EXTRAS | {"numba", "psutil"}),
        (called(*TINY), EXTRAS | {"numba"}),
    ],
    ids=["import", "help", "lesson", "list", "list json", "list presets", "info", "run"],
)
def test_nothing_is_imported_that_is_not_used(code: str, absent: set[str], tmp_path: Path) -> None:
    assert imported(code, tmp_path) & absent == set()


def test_info_does_not_load_scipys_solvers(tmp_path: Path) -> None:
    code = called("info", "synthetic") + "\nassert 'scipy.optimize' not in sys.modules"
    assert "torch" in imported(code, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_of_a_command_what_the_command_says(command: str, call: Call) -> None:
    text = " ".join(call("--help")[0].split())
    line = declared_summary(f"cli/{command}_command.py", f"{command}_command")
    assert line
    assert f"{command} {line}" in text
    own = " ".join(call(command, "--help")[0].split())
    assert line in own


def test_a_mistyped_command_is_met_with_the_nearest(call: Call) -> None:
    said = call("reprot", expect=2)[1]
    assert said.startswith("error: unknown command 'reprot': did you mean 'report'? choose one of ")
    assert said.count("\n") == 1


LISTED = {
    "methods": methods,
    "samplers": samplers,
    "backbones": backbones,
    "topologies": topologies,
}


@pytest.mark.parametrize("kind", sorted(LISTED))
def test_a_fresh_process_lists_what_the_resolver_knows(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evergraph.cli.app", "list", kind, "--json"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {kind: LISTED[kind].summaries()}


def test_a_fresh_process_lists_datasets_with_the_facts_of_the_catalogue(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evergraph.cli.app", "list", "datasets", "--json"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    listed = json.loads(done.stdout)["datasets"]
    own = [n for n in datasets.names() if datasets.resolve(n).__module__.startswith("evergraph.")]
    assert list(listed) == own  # other tests may have imported plugins
    for name, facts in listed.items():
        known = catalogue().get(name)
        assert facts == (
            {"title": first_line(datasets.resolve(name))} if known is None else asdict(known)
        )


def test_a_part_registered_by_the_program_is_listed(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mine(Finetune):
        """A method of my own."""

        name = "mine"

    monkeypatch.setattr(methods, "_classes", dict(methods._classes))
    methods.register(Mine)
    listed = json.loads(call("list", "methods", "--json")[0])["methods"]
    assert listed["mine"] == "A method of my own."
    assert "tem" in listed
