"""The container: what it copies is there, what it starts is understood, its health is true."""

import fnmatch
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from evergraph.cli.app import _load
from evergraph.cli.serve_command import options_in
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from served import served

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")


def instructions() -> list[tuple[str, str]]:
    """Return what the file says, line by line, comments left out."""
    plain = re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in plain.splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, rest in lines]


def last(name: str) -> str:
    return [rest for each, rest in instructions() if each == name][-1]


def is_sent(path: str) -> bool:
    """Whether ``.dockerignore`` lets a file through: its last line that fits decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if line and not line.startswith("#"):
            parts = [path, *map(str, Path(path).parents), Path(path).name]
            if any(fnmatch.fnmatch(part, pattern) for part in parts if part != "."):
                sent = line.startswith("!")
    return sent


def test_what_is_copied_is_there_and_nothing_else_is_sent():
    copied = [
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert {"src", "constraints.txt", "deploy/evergraph.toml"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert is_sent(source), source
    assert is_sent("src/evergraph/cli/app.py")
    for other in (".venv/bin/python", ".git/config", "tests/conftest.py", "runs/a"):
        assert not is_sent(other), other
    assert not is_sent("src/evergraph/__pycache__/x.pyc")


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return what is said of each stage, those in front that it begins with included."""
    found = {}
    said = []
    for name, rest in instructions():
        if name == "FROM":
            source, _, stage = rest.partition(" AS ")
            said = found[stage] = [*found.get(source, [])]
        said.append((name, rest))
    return found


def test_there_are_a_service_and_a_machine_of_a_cluster():
    assert [*stages()][-1] == "serve"  # what is built where no target is named
    installed = {
        stage: re.findall(r"\.\[([\w,]+)\]", " ".join(rest for _, rest in said))
        for stage, said in stages().items()
    }
    assert installed["build-serve"] == ["serve,tables"]
    assert installed["build-cluster"] == ["cluster,tables"]
    for stage in ("serve", "cluster"):
        (copied,) = (rest for _, rest in stages()[stage] if rest.startswith("--from="))
        assert copied.startswith(f"--from=build-{stage} ")
    cluster = dict(stages()["cluster"])
    assert int(cluster["USER"].split(":")[0]) > 0
    assert "ENTRYPOINT" not in cluster  # Ray says what is run
    assert "RAY_AUTH_MODE=token" in cluster["ENV"]


@pytest.mark.parametrize(
    ("variant", "torch"), [("cpu", "torch==2.13.0+cpu"), ("cuda", "torch==2.13.0"), ("gpu", None)]
)
def test_the_variant_says_which_torch_is_installed(variant, torch):
    (line,) = (rest for name, rest in instructions() if name == "RUN" and "$VARIANT" in rest)
    shell = line.replace("/opt/evergraph/bin/pip", "echo")
    done = subprocess.run(
        ["sh", "-c", shell], cwd=ROOT, env={"VARIANT": variant}, capture_output=True, text=True
    )
    if torch is None:
        assert done.returncode == 2
        assert done.stderr == "VARIANT must be cpu or cuda, not 'gpu'\n"
    else:
        assert done.stdout.split()[-1] == torch


def test_it_runs_as_somebody_without_rights_and_stops_as_it_should():
    names = [name for name, _ in stages()["serve"]]
    user = last("USER")
    assert int(user.split(":")[0]) > 0
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert last("STOPSIGNAL") == "SIGTERM"
    assert json.loads(last("ENTRYPOINT"))[2].startswith(last("VOLUME"))
    assert "constraints.txt" in TEXT


def test_what_it_starts_is_understood():
    program, command, *words = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    assert (program, command) == ("evergraph", "serve")
    copied = [rest.split() for name, rest in instructions() if name == "COPY"]
    config = words[words.index("--config") + 1]
    (source,) = (ROOT / first for first, *_, to in copied if to == config)
    serve = _load("serve")
    known = {option for parameter in serve.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    assert options_in(source, serve)["port"] == int(last("EXPOSE"))
    assert words[words.index("--host") + 1] == "0.0.0.0"
    assert "--token-file" in words  # without which it would not listen there


def test_it_is_healthy_when_it_is_ready(tmp_path, monkeypatch):
    from evergraph.online.learner import OnlineLearner

    folder = LearnerFolder.open(tmp_path / "learner", make=OnlineLearner)
    app = create_app(folder)
    told = last("HEALTHCHECK").partition("CMD ")[2]
    with served(app) as (port, _):
        python, *words = json.loads(told.replace(":8000/", f":{port}/"))
        assert python == "python"

        def healthy():
            return not subprocess.run([sys.executable, *words], capture_output=True).returncode

        assert healthy()
        stopped = replace(folder.status(), stopped="the disk failed")
        monkeypatch.setattr(folder, "status", lambda: stopped)
        assert TestClient(app, base_url="http://127.0.0.1").get("/healthz").status_code == 200
        assert not healthy()
