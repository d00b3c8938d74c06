"""A process that answers and does not write: ``python -m evergraph.server.replica``.

It is started by ``Replicas``, which writes its orders to standard input as a line of JSON, and
another line when there are other tokens. When that input ends, whoever started it is gone, and so
it stops.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from evergraph.core.errors import EvergraphError
from evergraph.server.tls import Tls
from evergraph.server.tokens import CurrentTokens, Tokens

GRACE = 35.0  # seconds to stop in by itself once nobody is left to answer for
log = logging.getLogger("evergraph.server.replica")


def main() -> None:
    """Answer until told to stop."""
    lines = _lines()
    orders: dict[str, Any] = json.loads(next(lines, b"{}"))
    if not orders:
        sys.exit("a replica is started by evergraph serve --replicas, which gives it its orders")
    from evergraph.server.log_format import written_log

    with written_log(orders["log_format"], process=f"replica {orders['slot']}"):
        sys.exit(_replica(orders, lines))


def _replica(orders: dict[str, Any], lines: Iterator[bytes]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the server takes signals itself
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the writer is told, and tells us
    secrets = _Secrets.of(orders)
    watch = Thread(
        target=_outlive_nobody, args=(Path(orders["private"]), lines, secrets), daemon=True
    )
    watch.start()
    return _answer(orders, secrets)


@dataclass(frozen=True)
class _Secrets:
    """What may change while this process answers."""

    tokens: CurrentTokens | None = None
    tls: Tls | None = None

    @classmethod
    def of(cls, orders: dict[str, Any]) -> _Secrets:
        listed = orders["tokens"]
        tokens = None if listed is None else CurrentTokens(_as_tokens(listed))
        return cls(tokens, Tls.of(orders["tls"]))

    def renew(self, orders: dict[str, Any]) -> None:
        """Use other tokens, and read the certificate again."""
        if self.tokens is not None and orders["tokens"] is not None:
            self.tokens.now = _as_tokens(orders["tokens"])
        try:
            if self.tls is not None:
                self.tls.context = self.tls.read()
        except EvergraphError as error:
            log.error("the certificate was not reloaded: %s", error)


def _as_tokens(listed: list[Any]) -> Tokens:
    return Tokens(tuple((scope, token) for scope, token in listed))


def _answer(orders: dict[str, Any], secrets: _Secrets) -> int:
    from evergraph.core.plugins import load_plugins
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.app import create_app
    from evergraph.server.limits import Limits
    from evergraph.server.listening import bind, listen
    from evergraph.server.place import Place

    load_plugins(orders["plugins"])
    limits = Limits(**orders["limits"])
    app = create_app(
        LearnerFolder.of(orders["folder"], readonly=True, **orders["opening"]),
        tokens=secrets.tokens,
        limits=limits,
        place=Place.at(Path(orders["private"]), orders["slot"]),
        access_log=orders["access_log"],
    )
    bound = bind(orders["host"], orders["port"], shared=True)
    listen(
        app,
        bound,
        threads=orders["threads"],
        name=f"process {os.getpid()}",
        limits=limits,
        tls=secrets.tls,
        proxies=orders["proxies"],
    )
    return int(app.state.following.failed)


def _lines(source: int = 0) -> Iterator[bytes]:
    """Read lines; not through ``sys.stdin``, which a thread could not leave at the end."""
    read = b""
    while part := os.read(source, 1 << 16):
        *whole, read = (read + part).split(b"\n")
        yield from whole


def _outlive_nobody(private: Path, lines: Iterator[bytes], secrets: _Secrets) -> None:
    """Stop when the pipe from the process that started this one breaks; tidy up behind it."""
    for line in lines:
        secrets.renew(json.loads(line))
    shutil.rmtree(private, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    main()
