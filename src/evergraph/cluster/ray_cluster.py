"""Ray itself: found, started or joined, asked and stopped."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from evergraph.core.errors import ClusterError, ConfigurationError
from evergraph.core.extras import require

# How often a piece of work is given out again after a worker has died over it.
RETRIES = 3
# How long a machine may take to answer, how often it is asked while a result is waited for, and
# how often in a row it may be silent.
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 5.0
PATIENCE = 3
_TOLD_BY_US = "A worker died or was killed|so the task will be retried|The node with node id"


def import_ray() -> ModuleType:
    """Return Ray, or say how to install it."""
    # Ray prints on stdout that a worker has died, where results go; we say it if it matters.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _TOLD_BY_US)
    require("ray", extra="cluster", why="engine 'ray'")
    import ray

    module: ModuleType = ray
    return module


def cpu_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpu_share(ray: ModuleType) -> float:
    """Return which share of a GPU a task gets, where every machine has some: 0 hides them all."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    shares = [min(node.get("GPU", 0) / max(node.get("CPU", 1), 1), 1) for node in nodes]
    return int(1e4 * min(shares, default=0)) / 1e4


def deaths(ray: ModuleType) -> tuple[type[BaseException], ...]:
    """Return the exceptions that say that a worker died, or what it had made was lost."""
    found = ray.exceptions
    killed = (found.WorkerCrashedError, found.NodeDiedError, found.OutOfMemoryError)
    return (*killed, found.ObjectLostError)


def stop(ray: ModuleType, refs: Iterable[object]) -> None:
    """Stop work that nobody waits for any more."""
    if ray.is_initialized() and answers(ray):
        for ref in refs:
            ray.cancel(ref, force=True)


def end(ray: ModuleType) -> None:
    """End Ray if it was started here, or leave the cluster if there still is one."""
    if ray.is_initialized() and answers(ray):
        ray.shutdown()


def start(ray: ModuleType, address: str | None, workers: int | None, store: int | None) -> bool:
    """Start or join Ray, unless this process has already; return whether it was done here."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is not None:
        _join(ray, address, quiet)
        return True
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait leave others the cores
    ray.init(
        address="local",  # without it, any cluster that was started on this machine is joined
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
            f"the cluster, with `ray start`, and not as a Ray client"
        )
    try:
        _check_reached(address)
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise ConfigurationError(  # ConnectionError is an OSError
            f"address must be that of a running Ray cluster, whose token is in RAY_AUTH_TOKEN, in "
            f"the file RAY_AUTH_TOKEN_PATH or in ~/.ray/auth_token if it asks for one, not "
            f"{address!r} ({first_line(error)})"
        ) from None


def _check_reached(address: str) -> None:
    """Raise unless somebody answers, and this is one of the cluster's machines.

    Ray itself would wait for minutes for nobody, and ends the process where no node runs.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        return  # 'auto' finds out by itself
    socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    if not _node_runs_here():
        raise ConfigurationError(
            f"address {address!r} can be joined from the cluster's own machines alone, and this is "
            f"none: run `ray start --address {address}` here first, with --num-cpus 0 if it is to "
            f"do no work"
        )


def _node_runs_here() -> bool:
    import psutil

    return any(process.info["name"] == "raylet" for process in psutil.process_iter(["name"]))


def answers(ray: ModuleType) -> bool:
    """Whether the cluster's first machine, which knows of all others, can be reached."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def check_answers(ray: ModuleType) -> None:
    """Raise if the cluster's first machine cannot be reached: Ray would wait for it for ever."""
    if not answers(ray):
        raise ClusterError(
            f"the first machine of the Ray cluster, {ray.get_runtime_context().gcs_address}, does "
            f"not answer any more: start the cluster again, and then this command"
        )


class Patience:
    """Waits for a cluster as long as its first machine answers.

    Asked for a moment's patience again and again, it looks every ``LOOK_SECONDS`` whether it does,
    and raises when it has been silent ``PATIENCE`` times in a row.
    """

    def __init__(self, ray: ModuleType) -> None:
        self.ray = ray
        self._looked = time.monotonic()
        self._silent = 0

    def look(self) -> None:
        """Look at the cluster, unless that was done a moment ago."""
        if time.monotonic() < self._looked + LOOK_SECONDS:
            return
        self._silent = 0 if answers(self.ray) else self._silent + 1
        if self._silent >= PATIENCE:
            check_answers(self.ray)
        self._looked = time.monotonic()


def awaited(ray: ModuleType, future: Future[Any]) -> Any:
    """Return a result as soon as it is there, or raise when it cannot come any more.

    One that takes long is waited for, however slow a link is: a wait that was broken off would
    begin to fetch it anew.
    """
    patience = Patience(ray)
    while not wait([future], timeout=LOOK_SECONDS).done:
        patience.look()
    return future.result()


def cores(ray: ModuleType) -> int:
    """Return how many processors all machines have together."""
    check_answers(ray)
    return int(ray.cluster_resources().get("CPU", 1))


def alive(ray: ModuleType) -> list[str]:
    """Return the machines that are there, by Ray's names for them."""
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def smallest_store(ray: ModuleType) -> int:
    """Return how many bytes the object store holds of the machine that has the smallest."""
    stores = [n["Resources"].get("object_store_memory", 0) for n in ray.nodes() if n["Alive"]]
    return int(min(stores, default=0))


def at(node: str) -> Any:
    """Return the option of a task that sends it to one machine and to no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def on_all_nodes(ray: ModuleType, path: Path) -> bool:
    """Whether every machine can open a file, and it has one size there."""
    return set(_answers(ray, _size, path).values()) == {path.stat().st_size}


def _answers(ray: ModuleType, question: Callable[..., Any], *given: Any) -> dict[str, Any]:
    """Ask every machine something, and return what each says; one that dies over it says nothing.

    Machines that are gone are known to be so only after a while.
    """
    task, found = ray.remote(question), {}
    asked = {
        node: task.options(num_cpus=0, scheduling_strategy=at(node)).remote(*given)
        for node in alive(ray)
    }
    for node, ref in asked.items():
        with suppress(ray.exceptions.TaskUnschedulableError, *deaths(ray)):
            found[node] = ray.get(ref)
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def first_line(error: BaseException) -> str:
    """Return how an error's message begins."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
