"""What an operator watches: numbers about the process and its folder, for ``/metrics``."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

from evergraph.core.versions import own_version
from evergraph.server.readiness import readiness

if TYPE_CHECKING:
    from evergraph.online.folder.status import FolderStatus
    from evergraph.server.metrics import Gauges
    from evergraph.server.schema import Process
    from evergraph.server.service import Service

OF_PROCESSES: dict[str, tuple[str, Callable[[Any], float]]] = {
    "process_resident_memory_bytes": (
        "Memory that a process holds.",
        lambda process: process.memory_info().rss,
    ),
    "process_cpu_seconds_total": (
        "CPU time that it has used.",
        lambda process: round(sum(process.cpu_times()[:2]), 2),
    ),
    "process_open_fds": ("Files and connections that it has open.", lambda p: p.num_fds()),
}


class Watching:
    """The numbers of one service.

    Args:
        service: which.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._began = time.time()

    def gauges(self) -> Gauges:
        """Return names, each with what it means and its value."""
        service = self._service
        told: Gauges = {
            "build_info": ("The version, as a label.", {f'version="{own_version()}"': 1}),
            "start_time_seconds": ("When the service was opened, in Unix time.", self._began),
            "uptime_seconds": ("For how long it has been open.", time.time() - self._began),
            "ready": ("1 if /readyz says so.", int(self._ready())),
            "oldest_waiting_seconds": (
                "For how long the oldest change has waited that is not learned yet.",
                service.oldest,
            ),
            "writer_busy_seconds_total": ("Time spent on changes.", service.busy),
        }
        told |= folder_gauges(service.folder.status(), now=time.time())
        with suppress(OSError):  # a folder that went away is told by what is asked of it
            free = shutil.disk_usage(service.folder.path).free
            told["disk_free_bytes"] = ("Room left where the folder is.", free)
        return told | process_gauges(service.processes())

    def _ready(self) -> bool:
        return bool(readiness(self._service)["status"] == "ready")


def folder_gauges(status: FolderStatus, *, now: float) -> Gauges:
    """Return how the folder does; what is not known is left out.

    now: in Unix seconds.
    """
    stopped = status.stopped_since
    told: Gauges = {
        "replay_deltas": ("Deltas that a restart would apply again.", status.deltas_since),
        "replay_seconds": ("How long that would take.", round(status.replay_seconds, 3)),
        "stopped_seconds": (
            "For how long no deltas have been taken; 0 while they are.",
            0 if stopped is None else round(max(now - stopped, 0.0), 3),
        ),
        "retrying": ("1 if it has stopped, and tries again by itself.", int(status.retrying)),
        "set_aside_total": ("Deltas that were set aside.", status.set_aside),
        "snapshot_failed": (
            "1 if the last snapshot could not be taken.",
            int(status.snapshot_error is not None),
        ),
    }
    if status.snapshot_time is not None:
        age = round(max(now - status.snapshot_time, 0.0), 3)
        told["snapshot_age_seconds"] = ("Since the newest snapshot was taken.", age)
    if status.snapshot_seconds is not None:
        told["snapshot_duration_seconds"] = ("How long it took.", status.snapshot_seconds)
    return told


def process_gauges(processes: list[Process]) -> Gauges:
    """Return what the processes of a service use; one that has ended is left out."""
    values: dict[str, dict[str, float]] = {name: {} for name in OF_PROCESSES}
    for place, one in enumerate(processes):
        with suppress(psutil.Error):
            running = psutil.Process(one.pid or os.getpid())
            if one.alive:
                labels = f'process="{place}",role="{one.role}"'
                found = {name: read(running) for name, (_, read) in OF_PROCESSES.items()}
                for name, value in found.items():
                    values[name][labels] = value
    meanings: Mapping[str, str] = {name: about for name, (about, _) in OF_PROCESSES.items()}
    return {name: (meanings[name], value) for name, value in values.items()}
