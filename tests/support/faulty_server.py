"""A publisher's server on this machine that does wrong what servers and networks do wrong."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

FAULTS = (
    "cut", "reset", "503", "429", "too-long", "changed", "redirect", "unsized", "chunk-cut",
)  # fmt: skip


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that turn away."""


class FaultyServer:
    """Serves some files; each request meets the next fault of a script, and none after its end.

    Attributes:
        files: bytes by path.
        script: what is still to go wrong.
        requests: what was asked for: path, and the Range header.
        version: of the files; ``changed`` makes it another, and the files end in other bytes.
    """

    def __init__(
        self,
        files: dict[str, bytes],
        script: Sequence[str] = (),
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.files, self.script = dict(files), list(script)
        self.requests: list[tuple[str, str | None]] = []
        self.version = 0
        self._server = _Quiet(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        scheme = "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultyServer:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def content(self, path: str) -> bytes:
        """Return a file as it is by now."""
        body = self.files[path]
        return body if not self.version else body[:-1] + bytes([self.version % 256])

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                fault = server.script.pop(0) if server.script else "none"
                server.requests.append((self.path, self.headers.get("Range")))
                self.close_connection = True
                with contextlib.suppress(OSError):  # the client has gone
                    _Reply(server, self, fault).send()

        return Handler


class _Reply:
    def __init__(self, server: FaultyServer, handler: Any, fault: str) -> None:
        self.server, self.handler, self.fault = server, handler, fault

    def send(self) -> None:
        handler, fault = self.handler, self.fault
        path = handler.path.removeprefix("/moved")
        if fault == "changed":
            self.server.version += 1
        if path not in self.server.files or fault in ("404", "503", "429"):
            code = int(fault) if fault.isdigit() else 404
            self._head(code, {"Content-Length": "0", "Retry-After": "0"})
        elif fault == "redirect":
            self._head(302, {"Location": f"{self.server.url}/moved{path}", "Content-Length": "0"})
        elif fault == "reset":
            handler.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        elif fault == "silent":
            time.sleep(2)
        else:
            self._file(self.server.content(path))

    def _file(self, body: bytes) -> None:
        fault, asked = self.fault, self._start(len(body))
        etag = f'"{self.server.version}"'
        headers = {} if fault == "no-version" else {"ETag": etag}
        if fault == "html":
            body, asked = b"<html>captive portal</html>", 0
        if asked >= len(body) and asked:
            self._head(416, {"Content-Range": f"bytes */{len(body)}", "Content-Length": "0"})
            return
        rest = body[asked:]
        if asked:
            first = asked + (fault == "wrong-range")
            headers["Content-Range"] = f"bytes {first}-{len(body) - 1}/{len(body)}"
        code = 206 if asked else 200
        if fault == "wrong":
            rest = bytes(255 - byte for byte in rest)
        if fault in ("unsized", "chunk-cut"):
            self._unsized(code, headers, rest)
            return
        told = {"too-short": len(rest) // 2, "too-long": len(rest) + 5}.get(fault, len(rest))
        if fault == "gzip":
            headers["Content-Encoding"] = "gzip"
        self._head(code, headers | {"Content-Length": str(told)})
        self._write(rest)

    def _start(self, length: int) -> int:
        """Return from which byte on the file is sent."""
        asked, version = self.handler.headers.get("Range"), self.handler.headers.get("If-Range")
        if asked is None or self.fault == "no-range":
            return 0
        if version not in (None, f'"{self.server.version}"'):
            return 0
        return int(asked.removeprefix("bytes=").removesuffix("-"))

    def _write(self, rest: bytes) -> None:
        if self.fault == "drip":
            for byte in rest:
                self.handler.wfile.write(bytes([byte]))
                time.sleep(0.05)
        else:
            self.handler.wfile.write(rest[: len(rest) // 2] if self.fault == "cut" else rest)

    def _unsized(self, code: int, headers: dict[str, str], rest: bytes) -> None:
        self._head(code, headers | {"Transfer-Encoding": "chunked"})
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(rest), rest) if rest else b"")
        if self.fault == "unsized":
            self.handler.wfile.write(b"0\r\n\r\n")

    def _head(self, code: int, headers: dict[str, str]) -> None:
        self.handler.send_response(code)
        for name, value in headers.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()


@contextlib.contextmanager
def faulty(files: dict[str, bytes], *script: str) -> Iterator[FaultyServer]:
    """Serve files by a script."""
    with FaultyServer(files, script) as server:
        yield server
