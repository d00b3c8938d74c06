"""A cluster in network namespaces, and a program on one of its nodes that does what it is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "cluster_in_namespaces"
ADDRESS = "10.77.0.1:6379"
WORK = Path(__file__).with_name("cluster_work.py")


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
