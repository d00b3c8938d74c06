"""What an operator watches is there, is right, and is written as Prometheus reads it."""

import time
from dataclasses import replace
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from evergraph import __version__
from evergraph.online.folder.markers import FolderStatus
from evergraph.server.auth import Tokens
from evergraph.server.observability import folder_gauges
from waiting import until

FRESH = FolderStatus(path="f", readonly=False, seq=0, snapshot=0, deltas_since=3, bytes_since=9)


def watched(client: TestClient, **headers: str) -> dict[str, Any]:
    """Return all metrics by name, as Prometheus' own reader finds them."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def value(metrics: dict[str, Any], name: str, **labels: str) -> float:
    (found,) = [one for one in metrics[f"evergraph_{name}"] if labels.items() <= one.labels.items()]
    return float(found.value)


def test_metrics_are_read_strictly(client):
    for node in ("a", "b", "nobody"):
        client.get(f"/v1/nodes/{node}")
    client.get("/nowhere")
    # What a change has cost is counted once it is answered.
    until(lambda: value(watched(client), "writer_busy_seconds_total") > 0)
    metrics, node = watched(client), "/v1/nodes/{node:path}"  # routes, not paths
    assert value(metrics, "requests_total", route=node, status="200") == 2
    assert value(metrics, "requests_total", route=node, status="404") == 1
    assert value(metrics, "requests_total", route="other", status="404") == 1
    assert value(metrics, "request_seconds_bucket", route=node, le="30.0") == 3
    assert not [name for name in metrics if name.endswith("_created")]
    assert [value(metrics, name) for name in ("nodes", "edges", "seq", "waiting")] == [6, 3, 1, 0]
    assert value(metrics, "alarm") == 0
    assert value(metrics, "uptime_seconds") > 0
    assert abs(value(metrics, "start_time_seconds") - time.time()) < 600
    assert value(metrics, "ready") == 1
    assert value(metrics, "oldest_waiting_seconds") == 0
    assert value(metrics, "replay_deltas") == 1
    assert value(metrics, "stopped_seconds") == value(metrics, "set_aside_total") == 0
    assert value(metrics, "disk_free_bytes") > 0
    rss = value(metrics, "process_resident_memory_bytes")
    assert rss == pytest.approx(psutil.Process().memory_info().rss, rel=0.5)
    assert value(metrics, "build_info", version=__version__) == 1
    client.folder.compact()
    metrics = watched(client)
    assert value(metrics, "replay_deltas") == 0
    assert value(metrics, "snapshot_duration_seconds") >= 0


def test_refused_tokens_are_counted(serve):
    client = serve(tokens=Tokens((("read", "r" * 20),)))
    right, wrong = ({"Authorization": f"Bearer {c * 20}"} for c in "rx")
    assert value(watched(client, **right), "refused_tokens_total") == 0
    client.get("/v1/status", headers=wrong)
    client.get("/v1/status")
    client.post("/v1/forget", json={"ids": ["a"]}, headers=right)  # known, but may not
    assert value(watched(client, **right), "refused_tokens_total") == 2


def test_a_folder_as_it_is_told():
    told = {name: value for name, _, value in folder_gauges(FRESH, now=100.0)}
    assert (told["replay_deltas"], told["stopped_seconds"]) == (3, 0)
    assert "snapshot_age_seconds" not in told
    busy = replace(
        FRESH,
        snapshot_time=40.0,
        snapshot_seconds=0.5,
        replay_seconds=2.5,
        stopped_since=90.0,
        set_aside=2,
        snapshot_error="the disk is full",
    )
    told = {name: value for name, _, value in folder_gauges(busy, now=100.0)}
    assert (told["snapshot_age_seconds"], told["snapshot_duration_seconds"]) == (60.0, 0.5)
    assert (told["replay_seconds"], told["stopped_seconds"]) == (2.5, 10.0)
    assert (told["set_aside_total"], told["snapshot_failed"]) == (2, 1)
