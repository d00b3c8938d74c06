"""A publisher's server on this machine that does wrong what servers and networks do wrong."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

FAULTS = ("cut", "reset", "503", "429", "too-long", "changed", "redirect", "unsized", "chunk-cut")


class FaultyServer(ThreadingHTTPServer):
    """Serves some files; each request meets the next fault of a script, and none after its end.

    Attributes:
        files: bytes by path.
        script: what is still to go wrong.
        requests: what was asked for: path, and the Range header.
        version: of the files; ``changed`` makes it another, and the files end in other bytes.
    """

    daemon_threads = True

    def __init__(self, files: dict[str, bytes], script: Sequence[str] = ()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.script = dict(files), list(script)
        self.requests: list[tuple[str, str | None]] = []
        self.version = 0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> FaultyServer:
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that turn away."""

    def content(self, path: str) -> bytes:
        """Return a file as it is by now."""
        body = self.files[path]
        return body if not self.version else body[:-1] + bytes([self.version % 256])


def faulty(files: dict[str, bytes], *script: str) -> FaultyServer:
    return FaultyServer(files, script)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        server, path = self.server, self.path.removeprefix("/moved")
        self.fault = fault = server.script.pop(0) if server.script else "none"
        server.requests.append((self.path, self.headers.get("Range")))
        self.close_connection = True
        server.version += fault == "changed"
        with contextlib.suppress(OSError):  # the client has gone
            if path not in server.files or fault in ("404", "503", "429"):
                code = int(fault) if fault.isdigit() else 404
                self._head(code, {"Content-Length": "0", "Retry-After": "0"})
            elif fault == "redirect":
                self._head(302, {"Location": f"{server.url}/moved{path}", "Content-Length": "0"})
            elif fault == "reset":
                now = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            else:
                self._file(server.content(path))

    def _file(self, body: bytes) -> None:
        fault, version = self.fault, f'"{self.server.version}"'
        asked, known = self.headers.get("Range"), self.headers.get("If-Range")
        begin = 0  # from which byte on the file is sent
        if asked is not None and known in (None, version):
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
        if fault == "html":
            body, begin = b"<html>captive portal</html>", 0
        if begin >= len(body) and begin:
            self._head(416, {"Content-Range": f"bytes */{len(body)}", "Content-Length": "0"})
            return
        headers, rest = {"ETag": version}, body[begin:]
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(body) - 1}/{len(body)}"
        told = len(rest) + 5 if fault == "too-long" else len(rest)
        chunked = fault in ("unsized", "chunk-cut")
        headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(told)}
        self._head(206 if begin else 200, headers)
        if fault == "wrong":
            rest = bytes(255 - byte for byte in rest)
        if chunked:
            rest = b"%x\r\n%s\r\n" % (len(rest), rest) if rest else b""
            rest += b"0\r\n\r\n" if fault == "unsized" else b""
        self.wfile.write(rest[: len(rest) // 2] if fault == "cut" else rest)

    def _head(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
