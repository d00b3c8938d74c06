"""The unit under a real systemd, in namespaces of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "tests" / "support" / "under_systemd.py"
SYSTEMD = Path("/lib/systemd/systemd")
# Where systemd keeps its groups: a group of our own, so that it moves nobody else's processes.
GROUPS = (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that the manager is started in."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("unshare") is None:
        pytest.skip("needs root, systemd and unshare")
    above = next(path for path in GROUPS if (path / "cgroup.procs").exists())
    made = above / f"evergraph-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made ({error})")
    yield made
    for inside in sorted(made.rglob("*/"), key=lambda path: -len(path.parts)):
        if inside.is_dir():
            inside.rmdir()
    made.rmdir()


@pytest.mark.slow
def test_a_real_systemd_starts_it_again_after_a_kill(group: Path, tmp_path: Path) -> None:
    command = Path("/var/lib") / f"evergraph-test-{os.getpid()}"  # /tmp is another one in there
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m evergraph.cli.app "$@"\n')
    command.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [ROOT / "deploy" / "evergraph.service", command, ROOT / "deploy" / "evergraph.toml"]
    inside = [sys.executable, DRIVER, *words, "w" * 24, port]
    alone = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--kill-child"]
    try:
        done = subprocess.run(
            [
                "sh",
                "-c",
                f'echo $$ > {group}/cgroup.procs; exec "$@"',
                "-",
                *alone,
                *map(str, inside),
            ],
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        command.unlink()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "ready": "ready",
        "acknowledged": 1,
        "status": "ready",
        "kept": 1,
        "another": True,
        "ActiveState": "inactive",
        "Result": "success",
        "ExecMainStatus": "0",
    }
