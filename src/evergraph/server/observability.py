"""Observability: request ids, metrics, audit and access logs, and how the log is written."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

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

from evergraph.core.errors import check_choice
from evergraph.core.packages import own_version
from evergraph.online.delta import PARTS
from evergraph.server.http import HEADERS, REQUEST_ID, address_of, clear_frames, failure

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
SAFE_ID = re.compile(rb"[!-~]{1,64}").fullmatch  # printable and short: safe in a log line
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
LAGS = {
    "lag": "Deltas by which the process is behind the one that writes.",
    "lag_seconds": "Seconds by which it is behind.",
}
MAX_LINES = 10_000  # of the log, that may wait
EXIT_SECONDS = 2.0  # to write the remaining lines at exit
_PROCESS = os.urandom(4).hex()  # makes request ids differ between processes and restarts
_number = count(1).__next__
audited = logging.getLogger("evergraph.audit")
access = logging.getLogger("evergraph.access")
disable_created_metrics()  # type: ignore[no-untyped-call]  # start_time_seconds is enough


def request_id_of(scope: Scope) -> str:
    """Return the request id that the client sent, or a new one if none is safe to log."""
    sent: bytes = dict(scope.get("headers", ())).get(HEADER, b"")
    return sent.decode("ascii") if SAFE_ID(sent) else f"{_PROCESS}-{_number():x}"


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
        service, now = self._service, time.time()
        folder = service.folder.status()
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
        yield _metric("alarm", "1 while the accuracy alarm is raised.", raised)
        yield _metric("build_info", "The version, as a label.", 1, version=own_version())
        for name, meaning in LAGS.items():
            yield _metric(f"process_{name}", meaning, values[name], role=values["role"])


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
    metric: Metric = family(f"evergraph_{name}", meaning, labels=list(labels))
    metric.add_metric(list(labels.values()), float(value))  # type: ignore[attr-defined]
    return metric


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
        began = time.perf_counter()
        status = 0
        request_id = request_id_of(scope)
        REQUEST_ID.set(request_id)  # no reset needed: the task ends with the request

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                request_id_header = (HEADER, request_id.encode())
                message["headers"] = [*message.get("headers", ()), *HEADERS, request_id_header]
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
                facts["address"] = (scope.get("client") or "?")[0]
                line = "{method} {path!r} {status} {0:.4f} s {address}".format(seconds, **facts)
                access.info("%s", line, extra={"event": "request", "facts": facts})


class TextLines(logging.Formatter):
    """A line of text: time (UTC), level, logger, the request's id in brackets, and the message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line without the trace of an exception."""
        # Escaped, so that no client can forge a second line.
        message = record.message.replace("\r", "\\r").replace("\n", "\\n")
        request = f" [{name}]" if (name := REQUEST_ID.get()) else ""
        return f"{_timestamp(record)} {record.levelname} {record.name}{request}: {message}"


class JsonLines(logging.Formatter):
    """A JSON object per line: time, level, logger, message, and further facts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {"request_id": name} if (name := REQUEST_ID.get()) else {}
        line |= {name: vars(record)[name] for name in ("event", "facts") if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)


class WarningLimit(logging.Filter):
    """Limits warnings of one kind to ``most`` a second, so that no client can fill the disk.

    The next warning that passes says how many were left out. Other levels always pass.
    """

    def __init__(self, *, most: int = 50) -> None:
        super().__init__()
        self.most = most
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}  # by kind: second, count in it

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        if record.levelno != logging.WARNING:
            return True
        kind = record.name, str(getattr(record, "event", record.msg))
        second, count = self._seen.get(kind, (0, 0))
        if int(record.created) == second:
            self._seen[kind] = second, count + 1
            return count < self.most
        self._seen[kind] = int(record.created), 1
        if count > self.most:
            left_out = f"({count - self.most} more like it were left out)"
            record.msg, record.args = f"{record.getMessage()} {left_out}", None
        return True


class ThreadedHandler(logging.handlers.QueueHandler):
    """Writes lines on a thread of its own, so that a full pipe holds up no request.

    The caller formats them, who knows the request id. Beyond ``queue_size`` they are lost and counted.
    """

    queue: Queue[Any]

    def __init__(self, stream: IO[str], *, queue_size: int = MAX_LINES) -> None:
        super().__init__(Queue(queue_size))
        self._stream = stream
        self._lost = 0
        self._thread = Thread(target=self._write, name="evergraph-log", daemon=True)
        self._thread.start()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it as lost if the queue is full."""
        try:
            self.queue.put_nowait(record)
        except Full:
            self._lost += 1

    def _write(self) -> None:
        # Neither a StreamHandler nor the stream's buffer is used: at exit Python would wait for
        # their locks, even if the reader of the pipe hangs.
        while (record := self.queue.get()) is not None:
            lost, self._lost = self._lost, 0
            note = f"{lost} lines of the log were lost: nobody read them in time\n" if lost else ""
            unwritten = f"{record.getMessage()}\n{note}".encode("utf-8", "backslashreplace")
            with suppress(OSError, ValueError):  # the reader has gone
                descriptor = self._stream.fileno()
                while unwritten:
                    unwritten = unwritten[os.write(descriptor, unwritten) :]

    def close(self) -> None:
        """Write the remaining lines, but do not wait for a reader that hangs."""
        with suppress(Full):  # nobody reads: the daemon thread ends with the process
            self.queue.put_nowait(None)
            self._thread.join(EXIT_SECONDS)
        super().close()


FORMATS = {"text": TextLines, "json": JsonLines}


@contextmanager
def log_to_stderr(form: str) -> Iterator[None]:
    """Write the log to stderr in one of the formats, until the end of the ``with``."""
    check_choice("log format", form, FORMATS)
    handler = ThreadedHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    handler.addFilter(WarningLimit())
    root = logging.getLogger()
    evergraph = logging.getLogger("evergraph")
    old_handlers = root.handlers[:]
    old_levels = root.level, evergraph.level
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    evergraph.setLevel(logging.INFO)
    try:
        yield
    finally:
        handler.close()  # before anything else writes to stderr
        root.handlers[:] = old_handlers
        root.setLevel(old_levels[0])
        evergraph.setLevel(old_levels[1])


def _timestamp(record: logging.LogRecord) -> str:  # in UTC, to the millisecond
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{second}.{int(record.msecs):03d}Z"
