"""Log output with time, level and request id, as text or JSON, written by a separate thread."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Full, Queue
from threading import Thread
from typing import IO, Any

from evergraph.core.errors import check_choice
from evergraph.server.http import REQUEST_ID

MAX_LINES = 10_000  # that may wait
EXIT_SECONDS = 2.0  # to write the remaining lines at exit


class TextLines(logging.Formatter):
    """A line of text: time (UTC), level, logger, the request's id in brackets, and the message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line without the trace of an exception."""
        name = REQUEST_ID.get()
        # Escaped, so that no client can forge a second line.
        message = record.message.replace("\r", "\\r").replace("\n", "\\n")
        request = f" [{name}]" if name else ""
        return f"{_moment(record)} {record.levelname} {record.name}{request}: {message}"


class JsonLines(logging.Formatter):
    """A JSON object per line: time, level, logger, message, and further facts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if name := REQUEST_ID.get():
            line["request_id"] = name
        for part in ("event", "facts"):
            if hasattr(record, part):
                line[part] = getattr(record, part)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)


class WarningLimit(logging.Filter):
    """Limits warnings of one kind to ``most`` a second, so that no client can fill the disk.

    The next warning that passes says how many were left out. Other levels always pass.
    """

    def __init__(self, *, most: int = 50) -> None:
        super().__init__()
        self.most = most
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}  # by kind: second, count in it

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        if record.levelno != logging.WARNING:
            return True
        kind = record.name, str(getattr(record, "event", record.msg))
        second, count = self._seen.get(kind, (0, 0))
        if int(record.created) == second:
            self._seen[kind] = second, count + 1
            return count < self.most
        self._seen[kind] = int(record.created), 1
        if count > self.most:
            left_out = f"({count - self.most} more like it were left out)"
            record.msg, record.args = f"{record.getMessage()} {left_out}", None
        return True


class ThreadedHandler(logging.handlers.QueueHandler):
    """Writes lines on a thread of its own, so that a full pipe holds up no request.

    The caller formats them, who knows the request id. Beyond ``places`` they are lost and counted.
    """

    queue: Queue[Any]

    def __init__(self, stream: IO[str], *, places: int = MAX_LINES) -> None:
        super().__init__(Queue(places))
        self._stream = stream
        self._lost = 0
        self._thread = Thread(target=self._write, name="evergraph-log", daemon=True)
        self._thread.start()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it as lost if the queue is full."""
        try:
            self.queue.put_nowait(record)
        except Full:
            self._lost += 1

    def _write(self) -> None:
        # Neither a StreamHandler nor the stream's buffer is used: at exit Python would wait for
        # their locks, even if the reader of the pipe hangs.
        while (record := self.queue.get()) is not None:
            lost, self._lost = self._lost, 0
            more = f"{lost} lines of the log were lost: nobody read them in time\n" if lost else ""
            left = f"{record.getMessage()}\n{more}".encode("utf-8", "backslashreplace")
            with suppress(OSError, ValueError):  # the reader has gone
                number = self._stream.fileno()
                while left:
                    left = left[os.write(number, left) :]

    def close(self) -> None:
        """Write the remaining lines, but do not wait for a reader that hangs."""
        with suppress(Full):  # nobody reads: the daemon thread ends with the process
            self.queue.put_nowait(None)
            self._thread.join(EXIT_SECONDS)
        super().close()


FORMATS = {"text": TextLines, "json": JsonLines}


@contextmanager
def written_log(form: str) -> Iterator[None]:
    """Write the log to stderr in one of the formats, until the end of the ``with``."""
    check_choice("log format", form, FORMATS)
    handler = ThreadedHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    handler.addFilter(WarningLimit())
    root, own = logging.getLogger(), logging.getLogger("evergraph")
    before = root.handlers[:], root.level, own.level
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    own.setLevel(logging.INFO)
    try:
        yield
    finally:
        handler.close()  # before anything else writes to stderr
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        own.setLevel(before[2])


def _moment(record: logging.LogRecord) -> str:  # in UTC, to the millisecond
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{second}.{int(record.msecs):03d}Z"
