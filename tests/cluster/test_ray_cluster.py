"""Joining Ray, and waiting for it: refused in a sentence, and never for ever."""

import socket
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from evergraph.cluster import ray_cluster
from evergraph.cluster.ray_cluster import HealthCheck, awaited, cores
from evergraph.core.errors import ClusterError, ConfigurationError


class StandIn:
    """What stands in Ray's place: it knows an address, and how many processors there are."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self, port: int) -> None:
        self.port = port

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address=f"127.0.0.1:{self.port}")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 7.0}


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "CHECK_SECONDS", 0.0)


def ray_at(server: socket.socket) -> Any:
    return StandIn(server.getsockname()[1])


def test_a_first_machine_that_stays_silent_ends_the_wait(listening):
    ray = ray_at(listening)
    health = HealthCheck(ray)
    health.check()
    listening.close()
    health.check()
    health.check()
    with pytest.raises(ClusterError, match=f"127.0.0.1:{ray.port}, no longer responds"):
        health.check()


def test_one_answer_is_enough_to_go_on_waiting(listening):
    ray, silent = ray_at(listening), StandIn(1)
    health = HealthCheck(silent)
    for _ in range(3):
        health.ray = silent
        health.check()
        health.check()
        health.ray = ray
        health.check()


def test_a_result_that_cannot_come_is_an_error(listening):
    done = Future()
    done.set_result(3)
    assert awaited(ray_at(listening), done) == 3
    with pytest.raises(ClusterError):
        awaited(StandIn(1), Future())


def test_processors_are_not_asked_for_of_who_is_gone(listening):
    assert cores(ray_at(listening)) == 7
    with pytest.raises(ClusterError):
        cores(StandIn(1))


def test_who_is_no_node_is_told_how_to_become_one(listening, monkeypatch):
    monkeypatch.setattr(ray_cluster, "_node_runs_here", lambda: False)
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    with pytest.raises(ConfigurationError, match=f"`ray start --address {address}` here first"):
        ray_cluster._join(ray_at(listening), address, {})


def test_a_client_s_address_is_refused(listening):
    with pytest.raises(ConfigurationError, match="'auto' or host:port, not 'ray://first:10001'"):
        ray_cluster._join(ray_at(listening), "ray://first:10001", {})
