"""Limits of requests, connections and queues."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.core.checks import check_integer, check_number


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    >>> Limits(body=1_000).body
    1000
    >>> Limits(queue=0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: queue must be an integer of at least 1, not 0
    """

    body: int = 32_000_000  # bytes of a request body
    json: int = 1_000_000  # bytes of a JSON body, whose parsing holds up other requests
    rate: float = 10_000.0  # requests per second of a token, or of an address without tokens
    burst: int = 20_000  # requests at once after a pause
    guesses: float = 10.0  # invalid tokens per second from one address
    seconds: float = 30.0  # duration of a request
    nodes: int = 100_000  # ids that one request may name
    answers: int = 500_000  # probabilities in one answer
    queue: int = 64  # changes that may wait
    patience: float = 30.0  # seconds that a request waits for the delta named by ``after``
    connections: int = 1_000  # at once
    header_seconds: float = 10.0  # for a connection to send the head of a request
    idle_seconds: float = 15.0  # that an idle connection is kept
    held: int = 256_000_000  # bytes of all request bodies held at once, as sent and as parsed

    def __post_init__(self) -> None:
        for name in ("body", "json", "burst", "nodes", "answers", "queue", "connections", "held"):
            check_integer(name, getattr(self, name), least=1)
        for name in ("rate", "guesses", "seconds", "header_seconds", "idle_seconds"):
            check_number(name, getattr(self, name), least=0.001)
        check_number("patience", self.patience, least=0)
