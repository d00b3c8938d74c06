"""How much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.core.checks import check_integer, check_number


@dataclass(frozen=True)
class Limits:
    """What the service bears.

    Attributes:
        body: bytes of a request's body.
        rate: requests in a second from one token, or from one address where there are no tokens.
        burst: how many may come at once after a pause.
        seconds: how long a request may take.
        nodes: how many ids one request may name.
        answers: how many probabilities one answer may hold.
        queue: how many changes may wait for the one that is being learned.
        patience: seconds that a question waits for a delta it must know (``after``).

    >>> Limits(body=1_000).body
    1000
    >>> Limits(queue=0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: queue must be an integer of at least 1, not 0
    """

    body: int = 32_000_000
    rate: float = 10_000.0
    burst: int = 20_000
    seconds: float = 30.0
    nodes: int = 100_000
    answers: int = 5_000_000
    queue: int = 64
    patience: float = 30.0

    def __post_init__(self) -> None:
        for name in ("body", "burst", "nodes", "answers", "queue"):
            check_integer(name, getattr(self, name), least=1)
        check_number("rate", self.rate, least=0.001)
        check_number("seconds", self.seconds, least=0.001)
        check_number("patience", self.patience, least=0)
