"""How much one request may ask for, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.core.checks import check_integer, check_number


@dataclass(frozen=True)
class Limits:
    """What the service bears.

    Attributes:
        body: bytes of a request's body.
        json: bytes of a body of JSON: while it is read nobody else is answered.
        rate: requests in a second from one token, or from one address where there are no tokens.
        burst: how many may come at once after a pause.
        guesses: refused tokens in a second from one address.
        seconds: how long a request may take.
        nodes: how many ids one request may name.
        answers: how many probabilities one answer may hold.
        queue: how many changes may wait for the one that is being learned.
        patience: seconds that a question waits for a delta it must know (``after``).
        connections: how many there may be at once.
        header_seconds: how long a connection may take to send the head of a request.
        idle_seconds: how long a connection is kept for the next request.
        held: bytes of bodies held at once, of all requests.

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
        for name in ("rate", "guesses"):
            check_number(name, getattr(self, name), least=0.001)
        for name in ("seconds", "header_seconds", "idle_seconds"):
            check_number(name, getattr(self, name), least=0.001)
        check_number("patience", self.patience, least=0)
