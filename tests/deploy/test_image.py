"""The image is started, killed and started again, where one was built and buildah can run it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from evergraph.online.delta import Delta
from evergraph.server.client import Client

TOKEN, USER = "w" * 24, 10001
IMAGE = os.environ.get("EVERGRAPH_IMAGE", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not IMAGE or shutil.which("buildah") is None or os.geteuid() != 0,
        reason="needs root, buildah and EVERGRAPH_IMAGE, built with deploy/Dockerfile",
    ),
]


def output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


class Image:
    """A container of the image: its own command, as its user, with a token file."""

    def __init__(self, folder: Path) -> None:
        self.name = output("buildah", "from", "--pull-never", IMAGE)
        self.about = json.loads(output("buildah", "inspect", self.name))["OCIv1"]["config"]
        tokens = folder / "tokens"
        tokens.write_text(f"write {TOKEN}\n")
        tokens.chmod(0o400)
        os.chown(tokens, USER, USER)
        self.port = 0
        mount = f"{tokens}:/etc/evergraph/tokens:ro"  # its volume buildah makes itself
        self._run = ["buildah", "run", "--isolation", "chroot", "-v", mount, self.name, "--"]

    def start(self) -> subprocess.Popen[str]:
        """Start what the image starts, and wait until its own check finds it healthy."""
        words = [*self.about["Entrypoint"], *self.about["Cmd"], "--port", "0"]
        process = subprocess.Popen([*self._run, *words], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        found = None
        while found is None:
            line = process.stderr.readline()
            assert line, "it has ended"
            found = re.search(r"listening on http://0\.0\.0\.0:(\d+)/", line)
        self.port = int(found[1])
        assert self.healthy()
        return process

    def healthy(self) -> bool:
        """Ask as the image's own check does."""
        code = f"urllib.request.urlopen('http://127.0.0.1:{self.port}/readyz', timeout=4)"
        words = [*self._run, "python", "-c", f"import urllib.request; {code}"]
        return not subprocess.run(words, capture_output=True).returncode

    def client(self) -> Client:
        """Ask the service."""
        return Client(f"http://127.0.0.1:{self.port}", token=TOKEN)

    def server(self) -> psutil.Process:
        """The process that writes."""
        (found,) = (
            one
            for one in psutil.process_iter(["uids", "cmdline"])
            if one.info["uids"].real == USER
            and "serve" in one.info["cmdline"]
            and "python" in one.info["cmdline"][0]  # not what started it
        )
        return found


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Any]:
    """A container, removed afterwards."""
    tmp_path.parent.chmod(0o755)
    made = Image(tmp_path)
    yield made
    for one in psutil.process_iter(["uids"]):
        if one.info["uids"].real == USER:
            one.kill()
    output("buildah", "rm", made.name)


def test_it_starts_is_killed_starts_again_and_stops(image: Any) -> None:
    process = image.start()
    delta = Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", "y"), key="first")
    assert image.client().submit(delta)["seq"] == 1
    image.server().send_signal(signal.SIGKILL)
    assert process.wait(60) != 0
    process = image.start()
    assert image.client().status()["seq"] == 1
    assert image.client().predict(["a"])[0]["label"] == "x"
    assert image.about["StopSignal"] == "SIGTERM"
    image.server().send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
