"""Large bodies are read in a process of their own, small ones here.

Parsers hold Python's global lock from the first byte to the last: 30 MB of JSON take it for half a
second, and nothing else is answered meanwhile. The other process returns a delta as the journal
writes it, which is read back quickly, or the sentence of the refusal. What it takes for a byte of
JSON is bounded: 24 bytes at most, for lists and objects that are empty.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, TimeoutError
from contextlib import suppress
from threading import Lock, Thread, Timer
from typing import Any, Literal

from evergraph.core.errors import EvergraphError
from evergraph.core.extras import installed
from evergraph.online.codecs.delta_bytes import delta_from_bytes, delta_to_bytes
from evergraph.server.bodies import Question, ReadDelta, read_delta, read_question
from evergraph.server.http import JSON, RefusedError, as_json, status_of

LARGE = 1 << 18  # bytes from which on a body is read elsewhere
IDLE = 60.0  # seconds after which the other process ends if nothing comes
BLOCK = 1_000  # ids or rows that are written, and read, at once
PAUSE = 0.0002  # seconds that others may run in, between two blocks of an answer
NICE = 5  # whoever answers small questions goes first
QUESTION = "question"
# What became of a body: bytes of what it says, or status and sentence of a refusal.
Told = tuple[Literal["said"], list[bytes]] | tuple[Literal["refused"], int, str]


class BodyParser:
    """Reads bodies. One that is large is read by another process, which is started when needed.

    Args:
        most: how many nodes a body may name.
        seconds: how long reading one may take.
        large: bytes from which on a body is read elsewhere.
        idle: seconds after which the other process ends if nothing comes.

    >>> parser = BodyParser(most=9, seconds=5.0)
    >>> parser.question(b'{"ids": ["a"]}')
    Question(ids=['a'], every_class=False)
    >>> parser.close()
    """

    def __init__(
        self,
        *,
        most: int,
        seconds: float,
        large: int = LARGE,
        idle: float = IDLE,
    ) -> None:
        self.most = most
        self.seconds = seconds
        self.large = large
        self.idle = idle
        self._pool: ProcessPoolExecutor | None = None
        self._pid = 0
        self._lock = Lock()
        self._unused = Timer(0, self._end_unused)

    def delta(self, body: bytes, *, model: str, kind: str = JSON) -> ReadDelta:
        """Return what a body that changes something says; see ``read_delta``."""
        if len(body) < self.large:
            return read_delta(body, model=model, kind=kind, most=self.most)
        delta, told, *rows = self._said(body, model, kind)
        return ReadDelta(delta_from_bytes(delta), _joined(rows), json.loads(told))

    def question(self, body: bytes) -> Question:
        """Return which nodes a body asks for; see ``read_question``."""
        if len(body) < self.large:
            return read_question(body, most=self.most)
        every_class, *ids = self._said(body, QUESTION, JSON)
        return Question(_joined(ids), bool(every_class))

    def _said(self, body: bytes, model: str, kind: str) -> list[bytes]:
        """Return what the other process says of a body; refuse what it refuses."""
        late = time.monotonic() + self.seconds
        with self._lock:
            self._unused.cancel()
            told = self._asked(late, body, model, kind)
            self._unused = Timer(self.idle, self._end_unused)
            self._unused.daemon = True
            self._unused.start()
        if told[0] == "refused":
            raise RefusedError(told[1], told[2])
        return told[1]

    def _asked(self, late: float, body: bytes, model: str, kind: str) -> Told:
        try:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin)
                begun = self._pool.submit(os.getpid)
                self._pid = begun.result(max(late - time.monotonic(), 0.001))
            found = self._pool.submit(read_elsewhere, body, model, kind, self.most)
            return found.result(max(late - time.monotonic(), 0.001))
        except TimeoutError:
            self._end(kill=True)
            raise RefusedError(
                503, f"reading the body took longer than {self.seconds:g} s", retry_after=1
            ) from None
        except BrokenExecutor:  # it was killed, as a rule for want of memory
            self._end()
            raise RefusedError(
                413, "the body takes more memory to be read than there is: send it in parts"
            ) from None

    def close(self) -> None:
        """End the other process, whatever it is at."""
        self._unused.cancel()
        self._end(kill=True)

    def _end_unused(self) -> None:
        with self._lock:
            self._end()

    def _end(self, *, kill: bool = False) -> None:
        pool, pid = self._pool, self._pid
        self._pool, self._pid = None, 0
        if pool is not None:
            if kill and pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """Make ready the process that bodies are read in: it outlives nobody, and holds nobody up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the service, which ends this one
    Thread(target=_outlive_nobody, daemon=True).start()
    os.nice(NICE)
    for package in ("orjson", "pyarrow", "pyarrow.compute"):  # what is loaded is no body's
        if installed(package.split(".")[0]):
            importlib.import_module(package)


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def read_elsewhere(body: bytes, model: str, kind: str, most: int) -> Told:
    """Return what a body says, as bytes, or why it is refused.

    >>> read_elsewhere(b'{"ids": ["a"]}', QUESTION, JSON, 9)
    ('said', [b'', b'["a"]'])
    """
    try:
        if model == QUESTION:
            asked = read_question(body, most=most)
            return "said", [b"1" if asked.every_class else b"", *_blocks(asked.ids)]
        found = read_delta(body, model=model, kind=kind, most=most)
        told = as_json(dict(found.told))
        return "said", [delta_to_bytes(found.delta), told, *_blocks(found.rows)]
    except EvergraphError as error:
        return "refused", status_of(error), str(error)


def _blocks(values: Sequence[Any]) -> list[bytes]:
    """Return values as JSON, some at a time: whoever reads them is not held up for long."""
    return [as_json(values[at : at + BLOCK]) for at in range(0, len(values), BLOCK)]


def _joined(blocks: Sequence[bytes]) -> list[Any]:
    """Return what blocks of JSON hold, one after the other; others may run in between."""
    found: list[Any] = []
    for block in blocks:
        found += json.loads(block)
        time.sleep(PAUSE)
    return found
