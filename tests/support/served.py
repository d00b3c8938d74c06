"""An application at a port of its own, in a thread of this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn

from evergraph.server.running import bind, server_for


@contextmanager
def served(app: Any, **given: Any) -> Iterator[tuple[int, uvicorn.Server]]:
    """Have an application listen until the end of a ``with``; yield its port, and its server.

    given: limits, certificate and proxies, as ``server_for`` takes them.
    """
    bound = bind("127.0.0.1", 0)
    bound.listen()
    server = server_for(app, **given)
    if hasattr(app, "set_server"):
        app.set_server(server, "http://here/")
    thread = Thread(target=server.run, kwargs={"sockets": [bound]})
    port = bound.getsockname()[1]  # asked first: a server that ends at once closes the socket
    thread.start()
    try:
        yield port, server
    finally:
        server.should_exit = True
        thread.join()
