"""One request for a file, or for the rest of it."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

BLOCK = 1 << 18  # bytes read at a time
_PASSING = (408, 425, 429)  # of the client's own faults those that pass; all of 500 and above may
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class Fault(Exception):  # noqa: N818  (one try failed: not yet anybody's error)
    """A try that failed.

    Attributes:
        again: whether another try may go better.
        reached: whether a server has answered at all.
        stale: whether what is there of the file belongs to another version of it.
        wait: seconds that the server asks to be left alone.
    """

    def __init__(
        self,
        said: str,
        *,
        again: bool = True,
        reached: bool = True,
        stale: bool = False,
        wait: float = 0.0,
    ) -> None:
        super().__init__(said)
        self.again, self.reached, self.stale, self.wait = again, reached, stale, wait


@dataclass(frozen=True, eq=False)
class Answer:
    """What a server sends.

    Attributes:
        response: its bytes.
        start: where in the file they begin.
        total: how long the whole file is, None where the server does not say.
        version: what tells this version of the file from others, None where nothing does.
    """

    response: HTTPResponse
    start: int
    total: int | None
    version: str | None

    def blocks(self, *, timeout: float, least_rate: float) -> Iterator[bytes]:
        """Yield the bytes as they come; fewer than ``least_rate`` a second are a fault."""
        since, came = time.monotonic(), 0
        with _faults_of_network():
            while block := self.response.read1(BLOCK):
                yield block
                came += len(block)
                passed = time.monotonic() - since
                if passed >= timeout:
                    if came < least_rate * passed:
                        raise Fault(f"only {came} bytes came within {passed:.0f} s")
                    since, came = time.monotonic(), 0


@contextmanager
def ask(url: str, *, start: int, version: str | None, timeout: float) -> Iterator[Answer]:
    """Ask for a file from byte ``start`` on, if it still is the version of which those before are.

    A server that cannot send parts, or has another version by now, sends all of it: see
    ``Answer.start``. Proxies are those that the environment names.
    """
    headers = {"User-Agent": "evergraph", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if version is not None:
            headers["If-Range"] = version
    with _faults_of_network():
        response = build_opener(_Redirects).open(Request(url, headers=headers), timeout=timeout)
    with response:
        yield _answer(response, start, version)


def _answer(response: HTTPResponse, start: int, version: str | None) -> Answer:
    headers = response.headers
    if headers.get("Content-Encoding", "identity") != "identity":
        raise Fault(f"it is sent in the encoding {headers['Content-Encoding']!r}", again=False)
    found = _version(headers)
    if response.status != 206:
        return Answer(response, 0, _length(headers.get("Content-Length")), found)
    span = _RANGE.fullmatch(headers.get("Content-Range", ""))
    if span is None or int(span[1]) != start or int(span[2]) + 1 != int(span[3]):
        raise Fault(f"other bytes are sent than asked for: {headers.get('Content-Range')!r}")
    if found != version:
        raise Fault("the file has changed on the server meanwhile", stale=True)
    return Answer(response, start, int(span[3]), found)


def _version(headers: Any) -> str | None:
    """Return what HTTP allows to stand in If-Range: a strong ETag, or else a date."""
    etag: str | None = headers.get("ETag")
    if etag is not None and not etag.startswith("W/"):
        return etag
    modified: str | None = headers.get("Last-Modified")
    return modified


def _length(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


@contextmanager
def _faults_of_network() -> Iterator[None]:
    """Turn whatever a network does to a request into a fault."""
    try:
        yield
    except HTTPError as error:
        error.close()
        passing = error.code in _PASSING or error.code >= 500
        rest = _length(error.headers.get("Retry-After"))
        raise Fault(
            f"HTTP {error.code} {error.reason}",
            again=passing or error.code == 416,
            stale=error.code == 416,
            wait=float(rest or 0),
        ) from error
    except URLError as error:
        said = getattr(error.reason, "strerror", None) or str(error.reason)
        unsafe = isinstance(error.reason, ssl.SSLCertVerificationError)
        raise Fault(said, again=not unsafe, reached=unsafe) from error
    except (OSError, HTTPException) as error:
        raise Fault(str(error) or type(error).__name__) from error


class _Redirects(HTTPRedirectHandler):
    """Follows redirects, but never from https to anything else."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        old, new = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if new not in ("https", old):
            raise Fault(f"it is redirected from {old} to {newurl}", again=False)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
