"""Observability: request ids, metrics, audit and access logs."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from evergraph.core.packages import own_version
from evergraph.online.delta import PARTS
from evergraph.server.http import HEADERS, REQUEST_ID, clear_frames, failure

if TYPE_CHECKING:
    from fastapi import Request
    from prometheus_client.metrics_core import Metric
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from evergraph.online.delta import Delta
    from evergraph.online.folder.markers import FolderStatus
    from evergraph.server.service import Service

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
KIND = "text/plain; version=0.0.4; charset=utf-8"
HEADER = b"x-request-id"
SANE = re.compile(rb"[!-~]{1,64}").fullmatch  # printable and short: safe in a log line
GAUGES = {
    "nodes": "Nodes in the graph.",
    "edges": "Edges; an undirected one counts once.",
    "classes": "Known classes.",
    "labelled": "Labelled nodes.",
    "memory": "Bytes of graph, embeddings and head.",
    "predicted": "Labels predicted before they were learned.",
    "seq": "Deltas applied.",
    "waiting": "Changes in the queue.",
    "deltas_since": "Deltas since the last snapshot.",
    "bytes_since": "Journal bytes since the last snapshot.",
    "keys": "Delta keys kept.",
}
PROCESS_GAUGES = {
    "seq": "Deltas that the answers of the process include.",
    "lag": "Replication lag in deltas.",
    "seconds": "Replication lag in seconds.",
    "alive": "1 if it answers.",
}
_PROCESS = os.urandom(4).hex()  # makes request ids differ between processes and restarts
_number = count(1).__next__
audited = logging.getLogger("evergraph.audit")
access = logging.getLogger("evergraph.access")
disable_created_metrics()  # type: ignore[no-untyped-call]  # start_time_seconds is enough


def request_id_of(scope: Scope) -> str:
    """Return the request id that the client sent, or a new one if none is safe to log."""
    for name, value in scope.get("headers", ()):
        if name == HEADER and SANE(value):
            sent: str = value.decode("ascii")
            return sent
    return f"{_PROCESS}-{_number():x}"


def audit(event: str, *, level: int = logging.INFO, **facts: object) -> None:
    """Write a line to the audit log: a few words, always the same for one kind of event, and facts.

    Facts are values that JSON can hold; never a token, and no data of a node.
    """
    pairs = " ".join(f"{name}={value!r}" for name, value in facts.items())
    audited.log(level, "%s", f"{event} {pairs}".strip(), extra={"event": event, "facts": facts})


def audit_change(request: Request, delta: Delta, seq: int, seconds: float) -> None:
    """Audit an applied change: client, counts of what was sent, and seconds since it came."""
    counts = {name: len(getattr(delta, name)) for name in PARTS if name != "late"}
    counts["labels"] = len(delta.labels) - delta.labels.count(None) + len(delta.late)
    audit(
        "change",
        route=request.url.path,
        seq=seq,
        key=delta.key,
        **{name: count for name, count in counts.items() if count},
        seconds=round(seconds, 4),
        address=address_of(request),
    )


def address_of(request: Request) -> str:
    """Return where a request comes from."""
    return "?" if request.client is None else request.client.host


class Metrics:
    """The metrics registry: requests by route and status, their durations, and the process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector("evergraph", registry=self.registry)  # memory, CPU, open files
        self._refused = Counter(
            "evergraph_refused_tokens",
            "Requests with a missing or invalid token.",
            registry=self.registry,
        )
        self._requests = Counter(
            "evergraph_requests", "Requests answered.", ["route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "evergraph_request_seconds",
            "Seconds until the answer.",
            ["route"],
            buckets=BOUNDS,
            registry=self.registry,
        )
        # Cached, since looking up a labelled child takes longer than counting.
        self._counted = cache(self._requests.labels)
        self._timed = cache(self._seconds.labels)

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._counted(route, status).inc()
        self._timed(route).observe(seconds)
        if status == 401:
            self._refused.inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class ServiceCollector(Collector):
    """Metrics of a service and its folder, collected at every scrape."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._began = time.time()

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not call a service that is not ready."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics but those of requests, memory and CPU."""
        service, now, folder = self._service, time.time(), self._service.folder.status()
        values = {**vars(folder), **service.status()}
        for name, meaning in GAUGES.items():
            yield _metric(name, meaning, values[name])
        # A running sum, like ``predicted``: their differences give the accuracy between scrapes.
        right = round((values["accuracy"] or 0.0) * values["predicted"], 6)
        ready = service.readiness()["status"] == "ready"
        gauges: list[tuple[str, str, float]] = [
            ("right", "Correct predictions; for numbers the sum of absolute errors.", right),
            ("stopped", "1 if writes are suspended.", values["stopped"] is not None),
            ("start_time_seconds", "Start of the service in Unix time.", self._began),
            ("uptime_seconds", "Time since the service started.", now - self._began),
            ("ready", "1 if /readyz answers 200.", ready),
            ("oldest_waiting_seconds", "Age of the oldest change.", service.writer.oldest),
            ("writer_busy_seconds_total", "Time spent on changes.", service.writer.busy),
            *folder_gauges(folder, now=now),
        ]
        with suppress(OSError):  # a missing folder is reported by other requests
            free = shutil.disk_usage(service.folder.path).free
            gauges.append(("disk_free_bytes", "Free bytes on the disk of the folder.", free))
        for gauge in gauges:
            yield _metric(*gauge)
        raised = bool(service.alarms()["alarms"])
        yield _metric("alarm", "1 while the accuracy alarm is raised.", raised, kind="accuracy")
        yield _metric("build_info", "The version, as a label.", 1, version=own_version())
        found = service.process()
        for name, meaning in PROCESS_GAUGES.items():
            value = getattr(found, name)
            yield _metric(f"process_{name}", meaning, value, process="0", role=found.role)


def folder_gauges(status: FolderStatus, *, now: float) -> list[tuple[str, str, float]]:
    """Return name, description and value of each known metric; now: in Unix seconds."""
    stopped = status.stopped_since
    since = 0 if stopped is None else round(max(now - stopped, 0.0), 3)
    gauges: list[tuple[str, str, float]] = [
        ("replay_deltas", "Deltas that a restart would replay.", status.deltas_since),
        ("replay_seconds", "Time that a replay would take.", round(status.replay_seconds, 3)),
        ("stopped_seconds", "Time since writes were suspended; 0 while accepted.", since),
        ("set_aside_total", "Deltas set aside after failing to apply.", status.set_aside),
        ("snapshot_failed", "1 if the last snapshot failed.", status.snapshot_error is not None),
    ]
    if status.snapshot_time is not None:
        age = round(max(now - status.snapshot_time, 0.0), 3)
        gauges.append(("snapshot_age_seconds", "Age of the newest snapshot.", age))
    if (took := status.snapshot_seconds) is not None:
        gauges.append(("snapshot_duration_seconds", "Time that the newest snapshot took.", took))
    return gauges


def _metric(name: str, meaning: str, value: float, **labels: str) -> Metric:
    """Return a metric: a counter if its name ends in ``_total``, else a gauge."""
    family: Any = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    found: Metric = family(f"evergraph_{name}", meaning, labels=list(labels))
    found.add_metric(list(labels.values()), float(value))  # type: ignore[attr-defined]
    return found


class Observed:
    """ASGI middleware: gives requests an id, answers failures, counts, times and logs."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        access_log: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.app = app
        self._metrics = metrics
        self._access_log = access_log
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, name = time.perf_counter(), 0, request_id_of(scope)
        REQUEST_ID.set(name)  # no reset needed: the task ends with the request
        address = (scope.get("client") or "?")[0]

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (HEADER, name.encode())
                message["headers"] = [*message.get("headers", ()), *HEADERS, named]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            if status:  # the answer has begun: uvicorn hangs up
                raise
            answer = failure(error, scope, self._folder)
            clear_frames(error)
            await answer(scope, receive, sending)
        finally:
            status = status or 500
            # The route's pattern, not the path: there are as many paths as nodes.
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - began
            self._metrics.observe(route, status, seconds)
            if self._access_log:
                facts = {name: scope[name] for name in ("method", "path")}
                facts |= {"status": status, "seconds": round(seconds, 6)}
                facts["address"] = address
                line = "{method} {path!r} {status} {0:.4f} s {address}".format(seconds, **facts)
                access.info("%s", line, extra={"event": "request", "facts": facts})
