"""Prometheus' text format, by hand."""

from __future__ import annotations

from fastapi.testclient import TestClient

from evergraph.server.metrics import Metrics


def test_buckets_add_up() -> None:
    metrics = Metrics()
    for seconds in (0.0009, 0.002, 0.002, 99.0):
        metrics.observe("/v1/x", 200, seconds)
    metrics.observe("/v1/x", 404, 0.5)
    lines = metrics.text({"nodes": ("Nodes.", 1234567)}).splitlines()
    assert "evergraph_nodes 1234567" in lines
    assert 'evergraph_requests_total{route="/v1/x",status="200"} 4' in lines
    assert 'evergraph_requests_total{route="/v1/x",status="404"} 1' in lines
    counts = {
        line.split('le="')[1].split('"')[0]: int(line.split()[-1])
        for line in lines
        if "_bucket{" in line
    }
    picked = [counts[edge] for edge in ("0.001", "0.0025", "0.25", "0.5", "30", "+Inf")]
    assert picked == [1, 3, 3, 4, 4, 5]
    assert 'evergraph_request_seconds_count{route="/v1/x"} 5' in lines
    assert 'evergraph_request_seconds_sum{route="/v1/x"} 99.504900' in lines


def test_a_service_counts_routes_not_paths(client: TestClient) -> None:
    for node in ("a", "b", "nobody"):
        client.get(f"/v1/nodes/{node}")
    client.get("/anything")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'evergraph_requests_total{route="/v1/nodes/{node:path}",status="200"} 2' in lines
    assert 'evergraph_requests_total{route="/v1/nodes/{node:path}",status="404"} 1' in lines
    assert 'evergraph_requests_total{route="other",status="404"} 1' in lines
    for line in (
        "evergraph_nodes 6",
        "evergraph_edges 6",
        "evergraph_seq 1",
        "evergraph_waiting 0",
        'evergraph_alarm{kind="accuracy"} 0',
        'evergraph_alarm{kind="novelty"} 0',
        'evergraph_alarms_total{kind="fading"} 0',
    ):
        assert line in lines
