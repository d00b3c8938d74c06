"""Writing the log without waiting for whoever reads it."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import IO

MOST = 10_000  # lines that wait
PATIENCE = 2.0  # seconds to write what waits, at the end


class AsideHandler(logging.Handler):
    """Writes lines in a thread of its own: a pipe that nobody empties holds up no request.

    Where more lines wait than there are places, further ones are lost, and how many is said.

    Args:
        stream: where to.
        places: how many lines may wait.

    >>> import io
    >>> stream = io.StringIO()
    >>> handler = AsideHandler(stream)
    >>> handler.emit(logging.LogRecord("x", 20, "", 0, "delta %d", (7,), None))
    >>> handler.flush()
    >>> stream.getvalue()
    'delta 7\\n'
    """

    def __init__(self, stream: IO[str], *, places: int = MOST) -> None:
        super().__init__()
        self._stream = stream
        self._lines: Queue[str | None] = Queue(places)  # None: the end
        self._lost = 0
        self._count = Lock()
        self._idle = Event()
        self._idle.set()
        Thread(target=self._write, name="evergraph-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line written; it is made here, where the request's id is known."""
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self._idle.clear()
        try:
            self._lines.put_nowait(line)
        except Full:
            with self._count:
                self._lost += 1

    def _write(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=0.1)
            except Empty:
                self._idle.set()
                line = self._lines.get()
            if line is None:
                return
            with suppress(OSError, ValueError):  # nobody reads any more
                self._put(line + "\n" + self._loss())
            if self._lines.empty():
                self._idle.set()

    def _put(self, text: str) -> None:
        """Write past the stream's own buffer: who waits there would hold up the process's end."""
        try:
            number = self._stream.fileno()
        except OSError:  # a stream that is no file
            self._stream.write(text)
            return
        left = text.encode("utf-8", "backslashreplace")
        while left:
            left = left[os.write(number, left) :]

    def _loss(self) -> str:
        with self._count:
            lost, self._lost = self._lost, 0
        return f"{lost} lines of the log were lost: nobody read them in time\n" if lost else ""

    def flush(self) -> None:
        """Wait until what waits is written, but not for a reader that has gone to sleep."""
        late = time.monotonic() + PATIENCE
        while not (self._idle.is_set() and self._lines.empty()) and time.monotonic() < late:
            self._idle.wait(0.01)

    def close(self) -> None:
        """Write what waits, as ``flush`` does, and end the thread."""
        self.flush()
        with suppress(Full):  # nobody reads: the thread ends with the process
            self._lines.put_nowait(None)
        super().close()
