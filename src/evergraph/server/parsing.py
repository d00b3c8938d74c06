"""Large bodies are read in a process of their own, small ones here.

Parsers hold Python's global lock from the first byte to the last: 30 MB of JSON that is wrong
everywhere took it for 40 s, and nothing else was answered meanwhile. The other process returns a
delta as the journal writes it, which is read back quickly, or the sentence of the refusal.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from evergraph.core.sizes import shown
from evergraph.online.codecs.delta_bytes import delta_from_bytes
from evergraph.server.bodies import QUESTION, Question, ReadDelta, read_delta, read_question
from evergraph.server.frames import Frame, read_frame, write_frame
from evergraph.server.http import JSON, RefusedError

LARGE = 1 << 18  # bytes from which on a body is read elsewhere
IDLE = 60.0  # seconds after which the other process ends if nothing comes
ROOM = 64  # bytes that reading a body may take for each byte that a body may have
PAUSE = 0.0002  # seconds that others may run in, between two blocks of an answer
log = logging.getLogger(__name__)


class Parsing:
    """Reads bodies. One that is large is read by another process, which is started when needed.

    Args:
        most: how many nodes a body may name.
        body: bytes that a body may have.
        seconds: how long reading one may take.
        large: bytes from which on a body is read elsewhere.
        idle: seconds after which the other process ends if nothing comes.
        memory: bytes that reading one may take; ``ROOM`` for each of ``body`` unless given.

    >>> parsing = Parsing(most=9, body=1_000, seconds=5.0)
    >>> parsing.question(b'{"ids": ["a"]}')
    Question(ids=['a'], every_class=False)
    >>> parsing.close()
    """

    def __init__(
        self,
        *,
        most: int,
        body: int,
        seconds: float,
        large: int = LARGE,
        idle: float = IDLE,
        memory: int | None = None,
    ) -> None:
        self.most = most
        self.memory = ROOM * body if memory is None else memory
        self.seconds = seconds
        self.large = large
        self.idle = idle
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: int | None = None  # how the last one that ended did
        self._lock = Lock()
        self._closed = False

    def delta(self, body: bytes, *, model: str, kind: str = JSON) -> ReadDelta:
        """Return what a body that changes something says; see ``read_delta``."""
        if len(body) < self.large:
            return read_delta(body, model=model, kind=kind, most=self.most)
        told = self._asked({"model": model, "kind": kind}, body)
        return ReadDelta(
            delta_from_bytes(told.parts[0]), _joined(told.parts[1:]), told.facts["told"]
        )

    def question(self, body: bytes) -> Question:
        """Return which nodes a body asks for; see ``read_question``."""
        if len(body) < self.large:
            return read_question(body, most=self.most)
        told = self._asked({"model": QUESTION}, body)
        return Question(_joined(told.parts), told.facts["every_class"])

    def _asked(self, facts: dict[str, Any], body: bytes) -> Frame:
        """Return what the other process says of a body; refuse what it refuses."""
        late = time.monotonic() + self.seconds
        with self._lock:
            frame = Frame(facts | {"most": self.most}, (body,))
            told = self._sent(frame, late)
            if told is None and self._ended == 0:  # having had nothing to do, as this was sent
                told = self._sent(frame, late)
        facts = {"memory": True} if told is None else told.facts
        if "refused" in facts:
            raise RefusedError(facts["refused"], facts["sentence"])
        if "failed" in facts:
            raise RuntimeError(f"a body could not be read:\n{facts['failed']}")
        if "memory" in facts:
            raise RefusedError(
                413,
                f"the body takes more than {shown(self.memory)} of memory to be read: send it in "
                "parts",
            )
        assert told is not None
        return told

    def _sent(self, frame: Frame, late: float) -> Frame | None:
        """Return the answer of the other process, None where it has ended instead."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        clock = Timer(max(late - time.monotonic(), 0.001), process.kill)
        clock.start()
        try:
            write_frame(process.stdin, frame)  # type: ignore[arg-type]
            told = read_frame(process.stdout)  # type: ignore[arg-type]
        except OSError:
            told = None
        finally:
            clock.cancel()
        if told is None or "memory" in told.facts:
            self._end()
        if told is None and (self._closed or time.monotonic() >= late):
            raise RefusedError(
                503, f"reading the body took longer than {self.seconds:g} s", retry_after=1
            )
        return told

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            orders = json.dumps({"memory": self.memory, "idle": self.idle})
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evergraph.server.parsing_worker", orders],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=_environment(),
                cwd=Path(__file__).parents[2],  # modules are looked for there, not where we are
                start_new_session=True,  # a signal to us is not one to it: it ends after us
            )
        return self._process

    def close(self) -> None:
        """End the other process."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._ended = process.wait(timeout=1.0)  # its input has ended
        except subprocess.TimeoutExpired:
            process.kill()
            self._ended = process.wait()


def _environment() -> dict[str, str]:
    """Return ours with the folders that this process imports from, and one thread."""
    path = os.pathsep.join(str(Path(part).absolute()) for part in sys.path if part)
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _joined(blocks: Sequence[bytes]) -> list[Any]:
    """Return what blocks of JSON hold, one after the other; others may run in between."""
    found: list[Any] = []
    for block in blocks:
        found += json.loads(block)
        time.sleep(PAUSE)
    return found
