"""``evergraph ingest``, ``predict`` and ``serve`` as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evergraph.cli.app import main
from evergraph.online.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.client import Client
from evergraph.server.tokens import read_tokens

NODES = "id,label,f,g\n" + "".join(
    f"n{i},{'' if i % 5 == 4 else 'xy'[i % 2]},{i % 2},{1 - i % 2}\n" for i in range(25)
)
EDGES = "source,target\n" + "".join(f"n{i},n{i - 2}\n" for i in range(2, 25))
READ, WRITE = "r" * 20, "w" * 20
Call = Callable[..., tuple[str, str]]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Call:
    """Run ``evergraph ...`` in a folder with two tables."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)

    def run(*arguments: str, expect: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["evergraph", *arguments])
        capfd.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capfd.readouterr()
        assert code == expect, err
        return out, err

    return run


@pytest.fixture
def service(tmp_path: Path, live: Any, learner: Any) -> tuple[str, Path]:
    """A service that asks for tokens: where it is, and the file that lists them."""
    path = tmp_path / "tokens"
    path.write_text(f"read {READ}\nwrite {WRITE}\n")
    path.chmod(0o600)
    folder = LearnerFolder.open(tmp_path / "served", make=learner)
    return live(create_app(folder, tokens=read_tokens(path))), path


TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--batch", "10")


def predicted(text: str) -> dict[str, str]:
    rows = [line.split(",") for line in text.splitlines()]
    assert rows[0] == ["id", "class", "probability"]
    assert all(0.5 <= float(row[2]) <= 1 for row in rows[1:])
    return {row[0]: row[1] for row in rows[1:]}


def test_a_folder_is_filled_once_and_asked(call: Call, tmp_path: Path) -> None:
    done = json.loads(call("ingest", "learner", *TABLES, "--json")[0])
    assert (done["nodes"], done["deltas"], done["classes"]) == (25, 3, 2)
    assert done["predicted"] == done["right"] == 12  # labelled ones of the second and third ten
    again = json.loads(call("ingest", "learner", *TABLES, "--json")[0])
    assert again == done
    (tmp_path / "ids.csv").write_text("time,id\n1,n4\n2,n9\n")
    assert predicted(call("predict", "learner", "ids.csv")[0]) == {"n4": "x", "n9": "y"}
    call("predict", "learner", "ids.csv", "--out", "told.csv")
    assert predicted(Path("told.csv").read_text()) == {"n4": "x", "n9": "y"}
    _, err = call("ingest", "learner", "--nodes", "nodes.csv", "--batch", "7", expect=2)
    assert err == "error: node 'n0' is in the graph already\n"


def test_an_ingest_that_was_stopped_goes_on(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, count = LearnerFolder.submit, iter(range(9))

    def stop(folder: LearnerFolder, delta: Any) -> Any:
        if next(count) == 2:
            raise KeyboardInterrupt
        return submit(folder, delta)

    with monkeypatch.context() as patch:
        patch.setattr(LearnerFolder, "submit", stop)
        _, err = call("ingest", "learner", *TABLES, expect=130)
    assert err.endswith("interrupted: give the same command again to go on\n")
    out, _ = call("ingest", "learner", *TABLES)
    assert out.startswith("25 nodes in 3 deltas; the learner knows 2 classes")


def test_a_service_is_filled_and_asked(
    call: Call, service: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, tokens = service
    with_token = ("--token-file", str(tokens))
    _, err = call("ingest", url, *TABLES, expect=2)
    assert err.startswith(f"error: {url}: a token is needed")
    for _ in range(2):
        done = json.loads(call("ingest", url, *TABLES, *with_token, "--json")[0])
        assert (done["deltas"], done["predicted"], done["right"]) == (3, 12, 12)
    assert Client(url, token=READ).status()["seq"] == 3
    (tmp_path / "ids").write_text("n4\nn9\n\n")
    assert predicted(call("predict", url, "ids", *with_token)[0]) == {"n4": "x", "n9": "y"}
    (tmp_path / "ids").write_text("n4\nnobody\n")
    out, err = call("predict", url, "ids", *with_token, expect=2)
    assert (out, err) == ("", f"error: {url}: node 'nobody' is not in the graph\n")


def test_integer_ids(call: Call, tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("id,label,f\n1,a,0\n2,b,1\n")
    call("ingest", "learner", "--nodes", "n.csv", "--integers")
    (tmp_path / "ids").write_text("2\n")
    assert predicted(call("predict", "learner", "ids", "--integers")[0]) == {"2": "b"}
    assert "node '2' is not in the graph" in call("predict", "learner", "ids", expect=2)[1]
    (tmp_path / "ids").write_text("two\n")
    assert "not 'two'" in call("predict", "learner", "ids", "--integers", expect=2)[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "l", "--host", "0.0.0.0"), "unless --token-file says who may read and write"),
        (("serve", "l", "--token-file", "nodes.csv"), "nodes.csv: the token file must not be"),
        (("serve", "l", "--topology", "sgd"), "unknown topology 'sgd'"),
        (("serve", "l", "--set", "head.wide=3"), "has no parameter 'wide'"),
        (("serve", "l", "--rate", "0"), "rate must be a number"),
        (("ingest", "l", "--nodes", "nothing.csv"), "nothing.csv: "),
        (("ingest", "l", "--nodes", "nodes.csv", "--batch", "0"), "batch must be an integer"),
        (("ingest", "l", "--nodes", "edges.csv"), "edges.csv: "),
        (("ingest", "l", "--nodes", "nodes.csv", "--integers"), "ids that are no integers"),
        (("ingest", "l", "--nodes", "nodes.csv", "--token-file", "t"), "l is a folder"),
        (("ingest", "http://127.0.0.1:9", "--nodes", "nodes.csv"), "no service answers"),
        (("predict", "nowhere", "nodes.csv"), "nowhere holds no learner yet"),
        (("predict", "nowhere", "nothing"), "nothing: cannot be read as a list of ids"),
    ],
)
def test_what_is_wrong_is_one_sentence(call: Call, arguments: tuple[str, ...], said: str) -> None:
    Path("nodes.csv").chmod(0o644)
    out, err = call(*arguments, expect=2)
    assert said in err
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("command", ["serve", "ingest", "predict"])
def test_help_does_not_load_torch(command: str) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['evergraph', '{command}', '--help']\n"
        "from evergraph.cli.app import app\n"
        "try:\n    app()\n"
        "except SystemExit:\n    pass\n"
        "sys.exit(bool({'torch', 'fastapi', 'pyarrow'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
