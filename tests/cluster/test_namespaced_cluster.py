"""A cluster whose machines have addresses, links and limits of their own, and what befalls it.

Needs root, iproute2 and Ray; takes minutes. The tests share one cluster, in the order below.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
able = os.name == "posix" and os.geteuid() == 0 and shutil.which("tc") and find_spec("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not able, reason="namespaces need root, iproute2 (ip, tc) and Ray"),
]
ADDRESS = "10.77.0.1:6379"
SCRIPT = ROOT / "scripts" / "cluster_in_namespaces"
WORK = Path(__file__).with_name("cluster_work.py")
RUN = [
    sys.executable,
    "-c",
    "from evergraph.cli.app import main; main()",
    "run",
    "--plugin",
    str(ROOT / "benchmarks" / "speed" / "twin_graphs.py"),
    "--dataset",
    "products-twin",
    "--set",
    "dataset.scale=0.02",
    "--method",
    "analytic",
    "--engine",
    "ray",
    "--address",
]


class Namespaces:
    """Nodes that come with a ``with`` block and go with it; see ``scripts/cluster_in_namespaces``.

    Args:
        limits: what ``up`` takes: nodes, link, cpu, memory, store.
    """

    def __init__(self, **limits: Any) -> None:
        self.limits = [f"--{name}={value}" for name, value in limits.items()]

    def __enter__(self) -> Namespaces:
        self.call("up", *self.limits)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.call("down")

    def call(self, *arguments: object) -> None:
        """Call the script and raise with what it says if it fails."""
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"{arguments} ended with {done.returncode}")

    def popen(self, command: Sequence[str], *, on: int = 1, **given: Any) -> subprocess.Popen[str]:
        """Start a command on a node."""
        inside = [sys.executable, str(SCRIPT), "run", "--on", str(on), "--", *command]
        return subprocess.Popen(inside, text=True, **given)


class Driver:
    """A program on a node that has joined the cluster, and is asked for work by its kind."""

    def __init__(self, cluster: Namespaces, *arguments: str, on: int = 1) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command = [sys.executable, str(WORK), ADDRESS, *arguments]
        self.process = cluster.popen(command, on=on, **pipes)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *raised: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=120)
        finally:
            self.process.kill()

    def begin(self, kind: str) -> None:
        """Ask for work, and do not wait for it."""
        assert self.process.stdin is not None
        print(kind, file=self.process.stdin, flush=True)

    def end(self) -> dict[str, Any]:
        """Wait for what was asked for; what Ray itself says in between is passed over."""
        assert self.process.stdout is not None
        line = next((said for said in self.process.stdout if said.startswith("{")), None)
        if line is None:
            raise RuntimeError(f"the program ended with {self.process.wait(60)} before its answer")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, kind: str) -> dict[str, Any]:
        """Ask for work, and wait for it."""
        self.begin(kind)
        return self.end()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Namespaces]:
    with Namespaces(nodes=3, link="1gbit", cpu=0.6, memory="3GB", store="200MB") as nodes:
        yield nodes


@pytest.fixture(scope="module")
def driver(cluster: Any) -> Iterator[Driver]:
    with Driver(cluster, "0.005") as program:
        program.ask("warm")
        yield program


def said(cluster: Any, address: str, **environment: str) -> tuple[int, str]:
    """Return how a command on the first node ends, and the last thing that it says."""
    program = cluster.popen(
        [*RUN, address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )
    lines = program.communicate(timeout=120)[1].strip().splitlines()
    return program.returncode, lines[-1]


def test_without_the_token_nobody_joins(cluster):
    code, sentence = said(cluster, ADDRESS, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="another")
    assert code == 2
    assert "is in RAY_AUTH_TOKEN, in the file RAY_AUTH_TOKEN_PATH" in sentence


def test_a_machine_that_is_no_node_is_told_to_become_one(cluster):
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", *RUN, ADDRESS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"run `ray start --address {ADDRESS}` here first" in done.stderr


@pytest.mark.parametrize("kind", ["columns", "statistics", "estimated", "exact"])
def test_three_nodes_give_the_bits_that_one_process_does(driver, kind):
    here, there = driver.ask(f"local:{kind}"), driver.ask(kind)
    assert there["workers"] == 3
    assert there["digest"] == here["digest"]
    assert there["bytes"] > 1_000_000


def test_a_slow_link_is_waited_for(cluster, driver):
    cluster.call("link", "20mbit")
    slow = driver.ask("columns")
    cluster.call("link", "1gbit")
    assert slow["digest"] == driver.ask("local:columns")["digest"]
    assert slow["seconds"] > 8 * slow["bytes"] / 60e6  # three links of 20 Mbit/s at their best


def test_a_node_that_is_killed_in_the_middle_changes_nothing(cluster, driver):
    driver.begin("naps")
    time.sleep(3)
    cluster.call("kill", 3)
    found = driver.end()
    assert found["workers"] == 2
    assert found["digest"] == driver.ask("local:naps")["digest"]


def test_a_node_that_joins_late_is_used(cluster, driver):
    driver.begin("naps")
    cluster.call("join")
    driver.end()
    found = driver.ask("statistics")
    assert found["workers"] == 3
    assert found["digest"] == driver.ask("local:statistics")["digest"]


def test_when_the_first_node_dies_the_command_ends_with_a_sentence(cluster):
    program = cluster.popen([*RUN, ADDRESS], on=2, stderr=subprocess.PIPE)
    time.sleep(25)
    cluster.call("kill", 1)
    last = program.communicate(timeout=150)[1].strip().splitlines()[-1]
    assert program.returncode == 2
    assert f"the head of the Ray cluster, {ADDRESS}, no longer responds" in last


def test_arrays_that_no_store_holds_go_to_disk(cluster):
    cluster.call("down")
    limits = {"nodes": 2, "link": "1gbit", "cpu": 0.6, "memory": "3GB", "store": "80MB"}
    with Namespaces(**limits) as small, Driver(small, "0.08") as program:
        found = program.ask("columns")  # 79 MB of features, and as much of embeddings
        assert found["digest"] == program.ask("local:columns")["digest"]
