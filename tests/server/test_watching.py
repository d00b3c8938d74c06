"""What an operator watches is there, is right, and is written as Prometheus reads it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from threading import Event
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient

from evergraph import __version__
from evergraph.online.folder.status import FolderStatus
from evergraph.server.schema import Process
from evergraph.server.tokens import Tokens
from evergraph.server.watching import folder_gauges, process_gauges
from evergraph.server.writer import Writer
from prometheus_text import Metric, read_metrics

FRESH = FolderStatus(path="f", readonly=False, seq=0, snapshot=0, deltas_since=3, bytes_since=9)


def watched(client: TestClient, **headers: str) -> dict[str, Metric]:
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    return read_metrics(answer.text)


def value(metrics: dict[str, Metric], name: str) -> float:
    (found,) = metrics[f"evergraph_{name}"].samples.values()
    return found


def test_metrics_are_read_strictly(client: TestClient) -> None:
    client.get("/v1/nodes/a")
    client.get("/nowhere")
    metrics = watched(client)
    assert value(metrics, "uptime_seconds") > 0
    assert abs(value(metrics, "start_time_seconds") - time.time()) < 600
    assert value(metrics, "ready") == 1
    assert value(metrics, "oldest_waiting_seconds") == 0
    assert value(metrics, "writer_busy_seconds_total") > 0
    assert value(metrics, "replay_deltas") == 1
    assert value(metrics, "stopped_seconds") == value(metrics, "set_aside_total") == 0
    assert value(metrics, "disk_free_bytes") > 0
    rss = value(metrics, "process_resident_memory_bytes")
    assert rss == pytest.approx(psutil.Process().memory_info().rss, rel=0.5)
    assert metrics["evergraph_build_info"].samples == {
        ("evergraph_build_info", f'version="{__version__}"'): 1
    }
    client.folder.compact()
    metrics = watched(client)
    assert value(metrics, "replay_deltas") == 0
    assert value(metrics, "snapshot_duration_seconds") >= 0


@pytest.mark.parametrize(
    "wrong",
    [
        "# HELP a x.\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a x.\n# TYPE a gauge\na 1\n# HELP a x.\n# TYPE a gauge\na 2\n",
        "# HELP a x.\n# TYPE a gauge\na{b=c} 1\n",
        '# HELP a x.\n# TYPE a gauge\na{b="c",b="d"} 1\n',
        "# HELP a x.\na 1\n",
        "# HELP a x.\n# TYPE a gauge\nb 1\n",
        "# HELP a x.\n# TYPE a counter\na 1\n",
        "# HELP a x.\n# TYPE a gauge\na one\n",
    ],
)
def test_the_reader_refuses_what_prometheus_does(wrong: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        read_metrics(wrong)


def test_a_learner_that_stopped_is_seen(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = replace(client.folder.status(), stopped="the disk failed")
    monkeypatch.setattr(client.folder, "status", lambda: stopped)
    metrics = watched(client)
    assert (value(metrics, "stopped"), value(metrics, "ready")) == (1, 0)


def test_refused_tokens_are_counted(serve: Any) -> None:
    client = serve(tokens=Tokens((("read", "r" * 20),)))
    right, wrong = ({"Authorization": f"Bearer {c * 20}"} for c in "rx")
    assert value(watched(client, **right), "refused_tokens_total") == 0
    client.get("/v1/status", headers=wrong)
    client.get("/v1/status")
    client.post("/v1/forget", json={"ids": ["a"]}, headers=right)  # known, but may not
    assert value(watched(client, **right), "refused_tokens_total") == 2


def test_how_long_the_oldest_change_has_waited() -> None:
    writer, begun, go = Writer(places=4), Event(), Event()

    def slow() -> None:
        begun.set()
        go.wait()

    first = writer.call(slow)
    assert begun.wait(10)
    time.sleep(0.05)
    assert writer.oldest >= 0.05  # that which is being made waits for its end
    second = writer.join(list, "item")
    third = writer.call(lambda: writer.oldest)
    go.set()
    first.result(), second.result()
    assert third.result() >= 0
    while writer.oldest:
        time.sleep(0.001)
    assert writer.busy >= 0.05
    writer.close()


def test_a_folder_as_it_is_told() -> None:
    told = {name: value for name, (_, value) in folder_gauges(FRESH, now=100.0).items()}
    assert (told["replay_deltas"], told["stopped_seconds"], told["retrying"]) == (3, 0, 0)
    assert "snapshot_age_seconds" not in told
    busy = replace(
        FRESH,
        snapshot_time=40.0,
        snapshot_seconds=0.5,
        replay_seconds=2.5,
        stopped_since=90.0,
        retrying=True,
        set_aside=2,
        snapshot_error="the disk is full",
    )
    told = {name: value for name, (_, value) in folder_gauges(busy, now=100.0).items()}
    assert (told["snapshot_age_seconds"], told["snapshot_duration_seconds"]) == (60.0, 0.5)
    assert (told["replay_seconds"], told["stopped_seconds"], told["retrying"]) == (2.5, 10.0, 1)
    assert (told["set_aside_total"], told["snapshot_failed"]) == (2, 1)


def test_a_process_that_has_ended_is_left_out() -> None:
    here = Process("writer", os.getpid(), 1, 0, 0.0, True)
    gone = Process("reader", 0, 0, 1, 0.0, False)
    _, told = process_gauges([here, gone])["process_resident_memory_bytes"]
    assert [*told] == ['process="0",role="writer"']
