"""A machine of a cluster is started from its image, where one was built and buildah can run it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

USER = 10001
IMAGE = os.environ.get("EVERGRAPH_CLUSTER_IMAGE", "")
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
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not IMAGE or shutil.which("buildah") is None or os.geteuid() != 0,
        reason="needs root, buildah and EVERGRAPH_CLUSTER_IMAGE, built with deploy/Dockerfile",
    ),
]


@pytest.fixture
def container() -> Iterator[str]:
    """Return a container of the image, removed afterwards."""
    words = ["buildah", "from", "--pull-never", IMAGE]
    name = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    yield name
    for one in psutil.process_iter(["uids"]):
        if one.info["uids"].real == USER:
            one.kill()
    subprocess.run(["buildah", "rm", name], check=True, capture_output=True)


def test_it_runs_on_a_cluster_of_its_own_and_asks_for_the_token(
    container: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.sh"
    script.write_text(SCRIPT)
    tmp_path.parent.chmod(0o755)
    done = subprocess.run(
        ["buildah", "run", "--isolation", "chroot", "-v", f"{script}:/script.sh:ro",
         "--env", f"RAY_AUTH_TOKEN={'t' * 64}", container, "--", "bash", "/script.sh"],
        capture_output=True, text=True, timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "analytic on synthetic" in done.stdout
