"""What a command imports, which is most of what it costs, and what --help says."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict

import pytest
import typer

from evergraph.cli.app import COMMANDS, app
from evergraph.core.component import declared_summary, first_line
from evergraph.datasets import datasets
from evergraph.datasets.base import catalogue
from evergraph.memory.samplers import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.topology import topologies

Call = Callable[..., tuple[str, str]]

EXTRAS = {"torch_geometric", "matplotlib", "pyarrow", "pandas", "ogb", "ray", "fastapi", "sklearn"}
HEAVY = EXTRAS | {"torch", "numpy", "scipy", "numba", "psutil", "safetensors"}
TINY = shlex.split(
    "run --dataset synthetic --set dataset.nodes=60 --set dataset.classes=4 "
    "--memory 500KB --device cpu --out out"
)


LISTED = {
    "methods": methods,
    "samplers": samplers,
    "backbones": backbones,
    "topologies": topologies,
}
# In one fresh process, one after another: what each may not have imported, nor any before it.
STEPS: list[tuple[list[str], set[str]]] = [
    (["--help"], HEAVY | {"pydantic", "rich", "markdown_it", "pygments"}),
    *(
        ([command, "--help"], HEAVY | {"markdown_it", "pygments"})
        for command in ("run", "bench", "serve", "ingest", "predict")
    ),
    ([], HEAVY | {"markdown_it", "pygments"}),
    *((["list", kind, "--json"], HEAVY | {"markdown_it"}) for kind in (*LISTED, "datasets")),
    (["list", "methods"], HEAVY | {"markdown_it"}),
    (["list", "presets"], HEAVY | {"markdown_it"}),
    (["info", "wordnet", "--json"], HEAVY | {"markdown_it"}),
    (["info", "synthetic"], EXTRAS | {"numba", "psutil", "scipy.optimize"}),
    (TINY, EXTRAS | {"numba"}),
]
SCRIPT = """
import contextlib, importlib, io, json, sys
import evergraph
found = [["", sorted(sys.modules)]]
for words in json.loads(sys.argv[1]):
    from evergraph.cli.app import main
    sys.argv = ["evergraph", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as stop:
            assert not stop.code
    found.append([out.getvalue(), sorted(sys.modules)])
for name in ("arrays", "published", "ogb", "loading", "synthetic"):
    importlib.import_module("evergraph.datasets." + name)
found.append(["", sorted(sys.modules)])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, set[str]]]:
    """What a fresh process prints, and has imported by then, at the import and at each step."""
    steps = json.dumps([words for words, _ in STEPS])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, steps],
        cwd=tmp_path_factory.mktemp("fresh"),
        check=True,
        capture_output=True,
        text=True,
    )
    return [(out, set(names)) for out, names in json.loads(done.stdout)]


def test_nothing_is_imported_that_is_not_used(fresh):
    assert fresh[0][1] & (HEAVY | {"pydantic", "rich", "typer"}) == set()
    for (words, absent), (_, names) in zip(STEPS, fresh[1:-1], strict=True):
        assert names & absent == set(), words
    assert "torch" in fresh[-2][1]
    assert fresh[-1][1] & EXTRAS == set()  # all readers of datasets


def test_a_fresh_process_lists_what_the_resolvers_know(fresh):
    told = {
        words[1]: json.loads(out)[words[1]]
        for (words, _), (out, _) in zip(STEPS, fresh[1:-1], strict=True)
        if words[-1:] == ["--json"] and words[0] == "list"
    }
    for kind, resolver in LISTED.items():
        assert told[kind] == resolver.summaries()
    own = [n for n in datasets.names() if datasets.resolve(n).__module__.startswith("evergraph.")]
    assert list(told["datasets"]) == own  # other tests may have imported plugins
    for name, facts in told["datasets"].items():
        known = catalogue().get(name)
        assert facts == (
            {"title": first_line(datasets.resolve(name))} if known is None else asdict(known)
        )


def test_what_is_recorded_of_the_bundled_graph_is_what_is_counted(call, fresh):
    words = ["info", "wordnet", "--json"]
    (recorded,) = (
        out for (each, _), (out, _) in zip(STEPS, fresh[1:-1], strict=True) if each == words
    )
    assert json.loads(recorded) == json.loads(call(*words)[0])  # datasets are imported here


def test_help_says_of_a_command_what_the_command_says(call):
    text = " ".join(call("--help")[0].split())
    for command, file in COMMANDS.items():
        line = declared_summary(f"cli/{file}.py", f"{command}_command")
        assert line
        assert f"{command} {line}" in text
        assert line in " ".join(call(command, "--help")[0].split())


def test_a_mistyped_command_is_met_with_the_nearest(call):
    said = call("reprot", expect=2)[1]
    assert said.startswith("error: unknown command 'reprot': did you mean 'report'? choose one of ")
    assert said.count("\n") == 1


def test_help_tells_what_is_taken_where_nothing_is_given():
    group = typer.main.get_command(app)
    context = group.make_context("evergraph", ["--version"], resilient_parsing=True)
    seen = 0
    for name in COMMANDS:
        command = group.get_command(context, name)
        inner = type(context)(command, info_name=name, parent=context)
        for parameter in command.params:
            seen += 1
            where, text = f"{name} {parameter.name}", parameter.get_help_record(inner)[1]
            assert parameter.help, where
            if parameter.required:
                assert "required]" in text, where
            elif parameter.name == "settings":
                assert "such as " in text.lower(), where  # any number, and none to begin with
            elif getattr(parameter, "is_flag", False):
                assert parameter.default is False, where  # off unless given goes without saying
            elif parameter.default in (None, [], ()):
                assert "(default: " in text, where
            else:
                assert f"[default: {parameter.default}" in text, where
    assert seen > 60


def test_a_service_chooses_numpys_threads_before_numpy_is_loaded(tmp_path):
    script = """
import os, sys
class Watch:
    def find_spec(self, name, *_):
        if name == "numpy":
            print(os.environ.get("OPENBLAS_NUM_THREADS"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
from evergraph.cli.app import main
main()
"""
    words = ["serve", str(tmp_path / "learner"), "--port", "0", "--threads", "2"]
    given = {name: value for name, value in os.environ.items() if "_NUM_THREADS" not in name}
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        env=given,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
