"""The unit under a real systemd, in namespaces of its own."""

from __future__ import annotations

import json
import os
import shutil
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
    made, before = above / f"evergraph-test-{os.getpid()}", set(above.iterdir())
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made ({error})")
    yield made
    for new in set(above.iterdir()) - before:  # a manager that was killed leaves its own behind
        inside = [path for path in new.rglob("*") if path.is_dir()]
        for path in [*sorted(inside, reverse=True), new]:
            path.rmdir()


@pytest.mark.slow
def test_a_real_systemd_starts_it_again_after_a_kill(group: Path, tmp_path: Path) -> None:
    command = Path("/var/lib") / f"evergraph-test-{os.getpid()}"  # /tmp is another one in there
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m evergraph.cli.app "$@"\n')
    command.chmod(0o755)
    words = [ROOT / "deploy" / "evergraph.service", command, ROOT / "deploy" / "evergraph.toml"]
    inside = [*map(str, [sys.executable, DRIVER, *words]), "w" * 24]
    alone = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--kill-child"]
    try:
        done = subprocess.run(
            ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "-", *alone, *inside],
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
