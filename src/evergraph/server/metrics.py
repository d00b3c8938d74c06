"""What the service did, in Prometheus' text format, and what is measured of every request."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evergraph.server.headers import HEADERS
from evergraph.server.request_ids import HEADER, REQUEST_ID, request_id_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from evergraph.online.alarms import Alarm

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
Gauges = dict[str, tuple[str, float | Mapping[str, float]]]  # a mapping's keys are labels
KIND = "text/plain; version=0.0.4; charset=utf-8"
access = logging.getLogger("evergraph.access")


class Metrics:
    """Counts requests by route and status, and how long they took.

    >>> metrics = Metrics()
    >>> metrics.observe("/v1/status", 200, 0.002)
    >>> print(metrics.text({"nodes": ("Nodes known.", 3)}).split("evergraph_request_seconds")[0])
    # HELP evergraph_nodes Nodes known.
    # TYPE evergraph_nodes gauge
    evergraph_nodes 3
    # HELP evergraph_refused_tokens_total Requests without a token of ours.
    # TYPE evergraph_refused_tokens_total counter
    evergraph_refused_tokens_total 0
    # HELP evergraph_requests_total Requests answered.
    # TYPE evergraph_requests_total counter
    evergraph_requests_total{route="/v1/status",status="200"} 1
    # HELP
    """

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[route, status] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]
        bound = next((bound for bound in BOUNDS if seconds <= bound), float("inf"))
        self._within[route, bound] += 1

    def text(self, gauges: Gauges) -> str:
        """Return all counts, and gauges: a name to what it means and its value, or several."""
        lines = [
            line
            for name, (meaning, value) in gauges.items()
            for line in (*_head(name, meaning, _kind(name)), *_values(name, value))
        ]
        lines += _head("refused_tokens_total", "Requests without a token of ours.", "counter")
        lines.append(f"evergraph_refused_tokens_total {self._answered(401)}")
        lines += _head("requests_total", "Requests answered.", "counter")
        lines += [
            f'evergraph_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self._requests.items())
        ]
        lines += _head("request_seconds", "Seconds until the answer.", "histogram")
        lines += [line for route in sorted(self._seconds) for line in self._histogram(route)]
        return "\n".join(lines) + "\n"

    def _answered(self, status: int) -> int:
        return sum(count for (_, one), count in self._requests.items() if one == status)

    def _histogram(self, route: str) -> list[str]:
        lines, total = [], 0
        for bound in (*BOUNDS, float("inf")):
            total += self._within[route, bound]
            edge = "+Inf" if bound == float("inf") else f"{bound:g}"
            lines.append(f'evergraph_request_seconds_bucket{{route="{route}",le="{edge}"}} {total}')
        lines.append(f'evergraph_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
        lines.append(f'evergraph_request_seconds_count{{route="{route}"}} {total}')
        return lines


def alarm_text(alarms: Sequence[Alarm], raised: Mapping[str, int]) -> str:
    """Return which alarms are raised, and how many ever were, by kind.

    >>> from evergraph.online.alarms import Alarm
    >>> told = alarm_text([Alarm("novelty", 7, "", 0.5, 0.0)], {"novelty": 2})
    >>> print("\\n".join(line for line in told.splitlines() if "novelty" in line))
    evergraph_alarm{kind="novelty"} 1
    evergraph_alarms_total{kind="novelty"} 2
    """
    from evergraph.online.alarms import KINDS  # torch comes with it, and a start must not wait

    now = {alarm.kind for alarm in alarms if alarm.cleared is None}
    lines = [*_head("alarm", "1 while something is not as it was.", "gauge")]
    lines += [f'evergraph_alarm{{kind="{kind}"}} {int(kind in now)}' for kind in KINDS]
    lines += _head("alarms_total", "Alarms raised so far.", "counter")
    lines += [f'evergraph_alarms_total{{kind="{kind}"}} {raised.get(kind, 0)}' for kind in KINDS]
    return "\n".join(lines) + "\n"


def _kind(name: str) -> str:
    """Return what Prometheus calls a number: one that only grows is named so.

    >>> _kind("set_aside_total"), _kind("waiting")
    ('counter', 'gauge')
    """
    return "counter" if name.endswith("_total") else "gauge"


def _values(name: str, value: float | Mapping[str, float]) -> list[str]:
    if isinstance(value, Mapping):
        return [f"evergraph_{name}{{{labels}}} {one}" for labels, one in value.items()]
    return [f"evergraph_{name} {value}"]


def _head(name: str, meaning: str, kind: str) -> tuple[str, str]:
    return f"# HELP evergraph_{name} {meaning}", f"# TYPE evergraph_{name} {kind}"


class Observed:
    """An application whose requests get an id, and whose answers are counted, timed and given
    safe headers.

    Args:
        app: answers.
        metrics: what counts.
        access_log: whether a line is written for every request.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, access_log: bool = False) -> None:
        self.app = app
        self._metrics = metrics
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, name = time.perf_counter(), 500, request_id_of(scope)
        REQUEST_ID.set(name)  # its task ends with the request

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (HEADER, name.encode())
                message["headers"] = [*message.get("headers", ()), *HEADERS, named]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            # A route's pattern, not its path: there are as many paths as nodes.
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - began
            self._metrics.observe(route, status, seconds)
            if self._access_log:
                _note_access(scope, status, seconds)


def _note_access(scope: Scope, status: int, seconds: float) -> None:
    address = (scope.get("client") or "?")[0]
    facts = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "seconds": round(seconds, 6),
        "address": address,
    }
    told = f"{scope['method']} {scope['path']!r} {status} {seconds:.4f} s {address}"
    access.info("%s", told, extra={"event": "request", "facts": facts})
