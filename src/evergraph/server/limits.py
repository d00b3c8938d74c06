"""Limits of requests, connections and queues."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.core.checks import check_integer, check_number


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Attributes:
        body: bytes of a request body.
        json: bytes of a JSON body; parsing it holds up other requests.
        rate: requests per second from one token, or from one address if there are no tokens.
        burst: requests at once after a pause.
        guesses: invalid tokens per second from one address.
        seconds: duration of a request.
        nodes: ids that one request may name.
        answers: probabilities in one answer.
        queue: changes that may wait.
        patience: seconds that a request waits for the delta named by ``after``.
        connections: connections at once.
        header_seconds: time for a connection to send the head of a request.
        idle_seconds: time that an idle connection is kept.
        held: bytes of all request bodies held at once, as sent and as parsed.

    >>> Limits(body=1_000).body
    1000
    >>> Limits(queue=0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: queue must be an integer of at least 1, not 0
    """

    body: int = 32_000_000
    json: int = 1_000_000
    rate: float = 10_000.0
    burst: int = 20_000
    guesses: float = 10.0
    seconds: float = 30.0
    nodes: int = 100_000
    answers: int = 500_000
    queue: int = 64
    patience: float = 30.0
    connections: int = 1_000
    header_seconds: float = 10.0
    idle_seconds: float = 15.0
    held: int = 256_000_000

    def __post_init__(self) -> None:
        for name in ("body", "json", "burst", "nodes", "answers", "queue", "connections", "held"):
            check_integer(name, getattr(self, name), least=1)
        for name in ("rate", "guesses", "seconds", "header_seconds", "idle_seconds"):
            check_number(name, getattr(self, name), least=0.001)
        check_number("patience", self.patience, least=0)
