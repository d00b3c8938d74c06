"""A service around a small learner, asked as a client asks it."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from command_tables import EDGES, NODES
from evergraph.cli.app import app
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.server.app import create_app
from evergraph.server.auth import Tokens, read_tokens
from evergraph.server.http import Limits
from served import served

HERE = "http://127.0.0.1:8000"
# Two groups of three, one unlabelled node in each; "a" is joined to "c", 1 to 3.
FIRST: dict[str, Any] = {
    "nodes": ["a", "b", "c", 1, 2, 3],
    "features": [[1.0, 0.0], [0.9, 0.1], [0.8, 0.0], [0.0, 1.0], [0.1, 0.9], [0.0, 0.8]],
    "labels": ["x", "x", None, "y", "y", None],
    "edges": [["a", "c"], ["a", "b"], [1, 3]],
    "key": "first",
}
Serve = Callable[..., TestClient]


def make() -> OnlineLearner:
    return OnlineLearner(head=FusedHead(width=32, views=["0|1|2"]))


def taken(client: TestClient, **headers: str) -> str:
    """Return what the service knows and predicts, in a few characters."""
    status = client.get("/v1/status", headers=headers).json()
    asked = {"ids": FIRST["nodes"], "all": True}
    told = client.post("/v1/predictions", json=asked, headers=headers).json()
    kept = {name: value for name, value in status.items() if name != "waiting"}
    return hashlib.sha256(json.dumps([kept, told], sort_keys=True).encode()).hexdigest()


@pytest.fixture(scope="session")
def first() -> dict[str, Any]:
    return FIRST


@pytest.fixture(scope="session")
def learner() -> Callable[[], OnlineLearner]:
    return make


@pytest.fixture(scope="session")
def fingerprint() -> Callable[..., str]:
    """Returns what a service knows and predicts, in a few characters."""
    return taken


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service that has learned ``FIRST``, for all tests that change nothing; that is checked."""
    folder = LearnerFolder.open(tmp_path_factory.mktemp("lasting") / "learner", make=make)
    app = create_app(folder, limits=Limits(rate=1e6, burst=10**6))
    with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
        client.post("/v1/deltas", json=FIRST)
        client.folder, before = folder, taken(client)
        yield client
        assert taken(client) == before


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return what starts a service on a learner of its own, to be ended by the test or after it."""
    with ExitStack() as all_of_them:

        def begin(
            *, tokens: Tokens | None = None, name: str = "learner", **limits: Any
        ) -> TestClient:
            folder = LearnerFolder.open(tmp_path / name, make=make)
            app = create_app(folder, tokens=tokens, limits=Limits(**limits))
            client = TestClient(app, base_url=HERE, raise_server_exceptions=False)
            this_one = all_of_them.enter_context(ExitStack())
            this_one.enter_context(client)
            client.folder, client.stop = folder, this_one.close
            return client

        yield begin


@pytest.fixture(scope="module")
def live() -> Iterator[Callable[[FastAPI], str]]:
    """Return what has an application listen on a free port, and where that is."""
    with ExitStack() as servers:

        def begin(app: FastAPI) -> str:
            return f"http://127.0.0.1:{servers.enter_context(served(app))[0]}"

        yield begin


@pytest.fixture
def client(serve: Serve) -> TestClient:
    """A service that has learned ``FIRST``."""
    service = serve()
    assert service.post("/v1/deltas", json=FIRST).status_code == 200
    return service


@pytest.fixture
def two_tables(tmp_path: Path) -> None:
    """Lay two tables where commands are called."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)


@pytest.fixture(scope="module")
def taken_in(tmp_path_factory: pytest.TempPathFactory, narrow_heads: None) -> Path:
    """A folder that was given both tables; not to be changed."""
    place = tmp_path_factory.mktemp("taken")
    (place / "nodes.csv").write_text(NODES)
    (place / "edges.csv").write_text(EDGES)
    tables = ["--nodes", str(place / "nodes.csv"), "--edges", str(place / "edges.csv")]
    words = ["ingest", str(place / "learner"), *tables, "--batch", "10"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    with LearnerFolder.open(place / "learner") as folder:
        folder.compact()  # so that copies are opened without applying its deltas again
    return place / "learner"


@pytest.fixture
def filled(taken_in: Path, tmp_path: Path) -> None:
    """Lay a learner that knows both tables where commands are called."""
    shutil.copytree(taken_in, tmp_path / "learner")


@pytest.fixture
def service(
    tmp_path: Path, live: Any, learner: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Path]:
    """A service that asks for tokens: where it is, and the file that lists them."""
    # It lives in this process: its lines would stand among those of the commands.
    monkeypatch.setattr(logging.getLogger("evergraph.audit"), "propagate", False)
    path = tmp_path / "tokens"
    path.write_text(f"read {'r' * 20}\nwrite {'w' * 20}\n")
    path.chmod(0o600)
    folder = LearnerFolder.open(tmp_path / "served", make=learner)
    return live(create_app(folder, tokens=read_tokens(path))), path


@pytest.fixture
def filled_service(taken_in: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """The same with a learner that knows both tables: where it is, and how commands ask it."""
    shutil.copytree(taken_in, tmp_path / "served")
    url, tokens = request.getfixturevalue("service")
    return url, ("--token-file", str(tokens))
