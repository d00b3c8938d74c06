"""Images of ``deploy/Dockerfile`` are started, where they were built and buildah can run them."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from evergraph.online.delta import Delta
from evergraph.server.client import Client

TOKEN, USER = "w" * 24, 10001
IMAGES = {name: os.environ.get(name, "") for name in ("EVERGRAPH_IMAGE", "EVERGRAPH_CLUSTER_IMAGE")}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("buildah") is None or os.geteuid() != 0, reason="needs root and buildah"
    ),
]


def output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Makes a container of an image, removed afterwards."""
    names = []

    def make(variable: str) -> str:
        if not IMAGES[variable]:
            pytest.skip(f"needs {variable}")
        names.append(output("buildah", "from", "--pull-never", IMAGES[variable]))
        return names[-1]

    tmp_path.parent.chmod(0o755)
    yield make
    for one in psutil.process_iter(["uids"]) if names else ():
        if one.info["uids"].real == USER:
            one.kill()
    for name in names:
        output("buildah", "rm", name)


class Service:
    """A container of the service: its own command, as its user, with a token file."""

    def __init__(self, name: str, folder: Path) -> None:
        self.about = json.loads(output("buildah", "inspect", name))["OCIv1"]["config"]
        tokens = folder / "tokens"
        tokens.write_text(f"write {TOKEN}\n")
        tokens.chmod(0o400)
        os.chown(tokens, USER, USER)
        mount = f"{tokens}:/etc/evergraph/tokens:ro"  # its volume buildah makes itself
        self._run = ["buildah", "run", "--isolation", "chroot", "-v", mount, name, "--"]

    def start(self) -> tuple[subprocess.Popen[str], Client, psutil.Process]:
        """Start what the image starts; return it once its own check finds it healthy.

        -> what was started, a client, and the process that writes
        """
        words = [*self.about["Entrypoint"], *self.about["Cmd"], "--port", "0"]
        process = subprocess.Popen([*self._run, *words], stderr=subprocess.PIPE, text=True)
        found = None
        while found is None:
            line = process.stderr.readline()
            assert line, "it has ended"
            found = re.search(r"listening on http://0\.0\.0\.0:(\d+)/", line)
        code = f"urllib.request.urlopen('http://127.0.0.1:{found[1]}/readyz', timeout=4)"
        output(*self._run, "python", "-c", f"import urllib.request; {code}")
        (server,) = (
            one
            for one in psutil.process_iter(["uids", "cmdline"])
            if one.info["uids"].real == USER
            and "serve" in one.info["cmdline"]
            and "python" in one.info["cmdline"][0]  # not what started it
        )
        return process, Client(f"http://127.0.0.1:{found[1]}", token=TOKEN), server


def test_the_service_starts_is_killed_starts_again_and_stops(made, tmp_path):
    service = Service(made("EVERGRAPH_IMAGE"), tmp_path)
    process, client, server = service.start()
    delta = Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", "y"), key="first")
    assert client.submit(delta)["seq"] == 1
    server.send_signal(signal.SIGKILL)
    assert process.wait(60) != 0
    process, client, server = service.start()
    assert client.status()["seq"] == 1
    assert client.predict(["a"])[0]["label"] == "x"
    assert service.about["StopSignal"] == "SIGTERM"
    server.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


# A port beyond those that Ray gives to its workers. Nothing is found or stopped by name: other
# clusters may run on this machine, and a chroot sees their processes.
SCRIPT = """
ray start --head --node-ip-address 127.0.0.1 --port 26379 --num-cpus 1 --include-dashboard=false \\
  --block >/tmp/ray.log 2>&1 &
for _ in $(seq 60); do
  ray health-check --address 127.0.0.1:26379 >/dev/null 2>&1 && break; sleep 1
done
RAY_AUTH_TOKEN=another ray health-check --address 127.0.0.1:26379 >/dev/null 2>&1 && exit 3
evergraph run --dataset synthetic --method analytic --engine ray \\
  --address 127.0.0.1:26379 --out /tmp/out
done=$?
kill %1; wait
exit $done
"""


def test_a_machine_runs_on_a_cluster_of_its_own_and_asks_for_the_token(made, tmp_path):
    script = tmp_path / "script.sh"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [
            "buildah",
            "run",
            "--isolation",
            "chroot",
            "-v",
            f"{script}:/script.sh:ro",
            "--env",
            f"RAY_AUTH_TOKEN={'t' * 64}",
            made("EVERGRAPH_CLUSTER_IMAGE"),
            "--",
            "bash",
            "/script.sh",
        ],
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "analytic on synthetic" in done.stdout
