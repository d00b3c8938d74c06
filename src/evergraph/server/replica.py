"""A process that answers and does not write: ``python -m evergraph.server.replica``.

It is started by ``Replicas``, which writes its orders to standard input as a line of JSON. When
that input ends, whoever started it is gone, and so it stops.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

GRACE = 35.0  # seconds to stop in by itself once nobody is left to answer for
log = logging.getLogger("evergraph.server.replica")


def main() -> None:
    """Answer until told to stop."""
    orders: dict[str, Any] = json.loads(_line() or b"{}")
    if not orders:
        sys.exit("a replica is started by evergraph serve --replicas, which gives it its orders")
    from evergraph.server.log_format import write_log

    write_log(orders["log_format"], process=f"replica {orders['slot']}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the server takes signals itself
    watch = Thread(target=_outlive_nobody, args=(Path(orders["private"]),), daemon=True)
    watch.start()
    sys.exit(_answer(orders))


def _answer(orders: dict[str, Any]) -> int:
    from evergraph.core.plugins import load_plugins
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.app import create_app
    from evergraph.server.limits import Limits
    from evergraph.server.listening import bind, listen
    from evergraph.server.place import Place
    from evergraph.server.tokens import Tokens

    load_plugins(orders["plugins"])
    listed = orders["tokens"]
    app = create_app(
        LearnerFolder.of(orders["folder"], readonly=True, **orders["opening"]),
        tokens=None if listed is None else Tokens(tuple(map(tuple, listed))),
        limits=Limits(**orders["limits"]),
        place=Place.at(Path(orders["private"]), orders["slot"]),
        access_log=orders["access_log"],
    )
    bound = bind(orders["host"], orders["port"], shared=True)
    listen(app, bound, threads=orders["threads"], name=f"process {os.getpid()}")
    return int(app.state.following.failed)


def _line() -> bytes:
    """Read the first line; not through ``sys.stdin``, which a thread could not leave at the end."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(0, 1 << 16)):
        line += part
    return line


def _outlive_nobody(private: Path) -> None:
    """Stop when the pipe from the process that started this one breaks; tidy up behind it."""
    while os.read(0, 1 << 16):
        pass
    shutil.rmtree(private, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    main()
