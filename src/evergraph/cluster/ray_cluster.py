"""Starting, joining, querying and stopping Ray."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from evergraph.core.errors import ClusterError, ConfigurationError
from evergraph.core.packages import require
from evergraph.core.resources import cpu_count as cpu_count

# How often an item is retried after its worker has died.
RETRIES = 3
# Time-out of a health check, seconds between checks while waiting for a result, and how many
# checks in a row may fail.
ANSWER_SECONDS = 5.0
CHECK_SECONDS = 5.0
MAX_FAILED_CHECKS = 3
_REPORTED_BY_US = "A worker died or was killed|so the task will be retried|The node with node id"


def import_ray() -> ModuleType:
    """Return the module ray, or raise with the command that installs it."""
    # Ray reports dead workers on stdout, where results go; evergraph reports them if it matters.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _REPORTED_BY_US)
    require("ray", extra="cluster", why="engine 'ray'")
    import ray

    module: ModuleType = ray
    return module


def gpu_share(ray: ModuleType) -> float:
    """Return a task's share of a GPU if every machine has one; 0 hides all GPUs."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    shares = [min(node.get("GPU", 0) / max(node.get("CPU", 1), 1), 1) for node in nodes]
    return int(1e4 * min(shares, default=0)) / 1e4


def deaths(ray: ModuleType) -> tuple[type[BaseException], ...]:
    """Return the exceptions for a dead worker or a lost result."""
    errors = ray.exceptions
    return (
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.OutOfMemoryError,
        errors.ObjectLostError,
    )


def stop(ray: ModuleType, refs: Iterable[object]) -> None:
    """Cancel work that is no longer needed."""
    if ray.is_initialized() and answers(ray):
        for ref in refs:
            ray.cancel(ref, force=True)


def end(ray: ModuleType) -> None:
    """Stop Ray if it was started here, or leave the cluster if it still exists."""
    if ray.is_initialized() and answers(ray):
        ray.shutdown()


def start(ray: ModuleType, address: str | None, workers: int | None, store: int | None) -> bool:
    """Start or join Ray, unless this process already has; return whether this call did."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is not None:
        _join(ray, address, quiet)
        return True
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads release the cores
    ray.init(
        address="local",  # otherwise any cluster on this machine is joined
        num_cpus=workers if workers is not None else cpu_count(),
        include_dashboard=False,
        object_store_memory=store,
        _system_config={"task_oom_retries": RETRIES},
        **quiet,
    )
    return True


def _join(ray: ModuleType, address: str, quiet: dict[str, Any]) -> None:
    if "://" in address:
        raise ConfigurationError(
            f"address must be 'auto' or host:port, not {address!r}: a machine joins as a node of "
            f"the cluster, with `ray start`, not as a Ray client"
        )
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdigit():  # Ray finds 'auto' itself
            # Ray would wait for minutes, and end the process if no node runs here.
            socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
            if not _node_runs_here():
                raise ConfigurationError(
                    f"address {address!r} can be joined only from the cluster's own machines: run "
                    f"`ray start --address {address}` here first, with --num-cpus 0 if this "
                    f"machine is to do no work"
                )
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise ConfigurationError(  # ConnectionError is an OSError
            f"address must be that of a running Ray cluster, whose token, if it needs one, is in "
            f"RAY_AUTH_TOKEN, in the file RAY_AUTH_TOKEN_PATH or in ~/.ray/auth_token, not "
            f"{address!r} ({first_line(error)})"
        ) from None


def _node_runs_here() -> bool:
    import psutil

    return any(process.info["name"] == "raylet" for process in psutil.process_iter(["name"]))


def answers(ray: ModuleType) -> bool:
    """Return whether the cluster's head machine, which knows all others, can be reached."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def check_answers(ray: ModuleType) -> None:
    """Raise if the cluster's head machine cannot be reached: Ray would wait for it forever."""
    if not answers(ray):
        raise ClusterError(
            f"the head of the Ray cluster, {ray.get_runtime_context().gcs_address}, no longer "
            f"responds: restart the cluster, and then this command"
        )


class HealthCheck:
    """Health check of a cluster's head machine, for use while waiting.

    ``check`` is called often; it checks every ``CHECK_SECONDS``, and raises after
    ``MAX_FAILED_CHECKS`` failed checks in a row.
    """

    def __init__(self, ray: ModuleType) -> None:
        self.ray = ray
        self._last_check = time.monotonic()
        self._failed_checks = 0

    def check(self) -> None:
        """Check the cluster, unless the last check is recent."""
        if time.monotonic() < self._last_check + CHECK_SECONDS:
            return
        self._failed_checks = 0 if answers(self.ray) else self._failed_checks + 1
        if self._failed_checks >= MAX_FAILED_CHECKS:
            check_answers(self.ray)
        self._last_check = time.monotonic()


def awaited(ray: ModuleType, future: Future[Any]) -> Any:
    """Return a result when it arrives, or raise if it no longer can.

    There is no time-out, however slow a link is: interrupting the wait would restart the transfer.
    """
    health_check = HealthCheck(ray)
    while not wait([future], timeout=CHECK_SECONDS).done:
        health_check.check()
    return future.result()


def cores(ray: ModuleType) -> int:
    """Return the number of processors of all machines."""
    check_answers(ray)
    return int(ray.cluster_resources().get("CPU", 1))


def alive(ray: ModuleType) -> list[str]:
    """Return the ids of the machines that are alive."""
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def smallest_store(ray: ModuleType) -> int:
    """Return the bytes of the smallest object store of any machine."""
    stores = [n["Resources"].get("object_store_memory", 0) for n in ray.nodes() if n["Alive"]]
    return int(min(stores, default=0))


def on_node(node: str) -> Any:
    """Return the task option that binds it to one machine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def on_all_nodes(ray: ModuleType, path: Path) -> bool:
    """Return whether every machine can open a file, with the same size."""
    task = ray.remote(_size).options
    refs = [task(num_cpus=0, scheduling_strategy=on_node(node)).remote(path) for node in alive(ray)]
    sizes = set()
    for ref in refs:  # machines that die are left out: Ray notices a lost one only after a while
        with suppress(ray.exceptions.TaskUnschedulableError, *deaths(ray)):
            sizes.add(ray.get(ref))
    return sizes == {path.stat().st_size}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
