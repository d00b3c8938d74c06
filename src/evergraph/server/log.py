"""Lines of the log: with time, level and the request's id, for people or for machines."""

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

from evergraph.core.checks import check_choice
from evergraph.server.http import REQUEST_ID

MOST = 10_000  # lines that wait
PATIENCE = 2.0  # seconds to write what waits, at the end


class TextLines(logging.Formatter):
    """A line of text: time (UTC), level, logger, the request's id in brackets, and the message.

    >>> record = logging.LogRecord("evergraph.x", 20, "", 0, "delta %d", (7,), None)
    >>> record.created, record.msecs = 0.0, 0.0
    >>> TextLines().format(record)
    '1970-01-01T00:00:00.000Z INFO evergraph.x: delta 7'
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return all of it but the trace of an exception."""
        name = REQUEST_ID.get()
        told = record.message.replace("\r", "\\r").replace("\n", "\\n")  # one line, whoever sent it
        asked = f" [{name}]" if name else ""
        head = f"{moment(record)} {record.levelname} {record.name}{asked}"
        return f"{head}: {told}"


class JsonLines(logging.Formatter):
    """An object a line: time, level, logger, message, and what else is known.

    >>> record = logging.LogRecord("evergraph.audit", 20, "", 0, "change seq=7", None, None)
    >>> record.created, record.msecs, record.event, record.facts = 0.0, 0.0, "change", {"seq": 7}
    >>> told = json.loads(JsonLines().format(record))
    >>> told["time"], told["message"], told["facts"]
    ('1970-01-01T00:00:00.000Z', 'change seq=7', {'seq': 7})
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        told: dict[str, Any] = {
            "time": moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if name := REQUEST_ID.get():
            told["request_id"] = name
        for part in ("event", "facts"):
            if hasattr(record, part):
                told[part] = getattr(record, part)
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, separators=(",", ":"), default=str)


class Sparing(logging.Filter):
    """Lets so many warnings of one kind pass in a second: who causes them must not fill the disk.

    How many were left out is said in the next one that passes. Other levels pass always, among
    them the lines about changes that were taken in.

    Args:
        most: in a second.

    >>> sparing, record = Sparing(most=1), logging.LogRecord("x", 30, "", 0, "refused", None, None)
    >>> record.created = 7.1
    >>> sparing.filter(record), sparing.filter(record), sparing.filter(record)
    (True, False, False)
    >>> record.created = 8.1
    >>> sparing.filter(record), record.getMessage()
    (True, 'refused (2 more like it were left out)')
    """

    def __init__(self, *, most: int = 50) -> None:
        super().__init__()
        self.most = most
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}  # the second, how many in it

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


class AsideHandler(logging.handlers.QueueHandler):
    """Has lines written by a thread of its own: a pipe that nobody empties holds up no request.

    A line is made here, where the request's id is known. Where more lines wait than there are
    places, further ones are lost, and how many is said.

    Args:
        stream: where to.
        places: how many lines may wait.
    """

    queue: Queue[Any]

    def __init__(self, stream: IO[str], *, places: int = MOST) -> None:
        super().__init__(Queue(places))
        self._stream = stream
        self._lost = 0
        self._thread = Thread(target=self._write, name="evergraph-log", daemon=True)
        self._thread.start()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Have a line wait for the thread; count it where there is no place."""
        try:
            self.queue.put_nowait(record)
        except Full:
            self._lost += 1

    def _write(self) -> None:
        # Not with a handler, whose lock the end of the process would wait for, and past the
        # stream's own buffer, for the same reason.
        while (record := self.queue.get()) is not None:
            lost, self._lost = self._lost, 0
            said = f"{lost} lines of the log were lost: nobody read them in time\n" if lost else ""
            with suppress(OSError, ValueError):  # nobody reads any more
                self._put(f"{record.getMessage()}\n{said}")

    def _put(self, text: str) -> None:
        try:
            number = self._stream.fileno()
        except OSError:  # a stream that is no file
            self._stream.write(text)
            return
        left = text.encode("utf-8", "backslashreplace")
        while left:
            left = left[os.write(number, left) :]

    def close(self) -> None:
        """Write what waits, but do not wait for a reader that has gone to sleep."""
        with suppress(Full):  # nobody reads: the thread ends with the process
            self.queue.put_nowait(None)
            self._thread.join(PATIENCE)
        super().close()


FORMATS = {"text": TextLines, "json": JsonLines}


@contextmanager
def written_log(form: str) -> Iterator[None]:
    """Have the log written to stderr in one of the formats, to the end of a with."""
    check_choice("log format", form, FORMATS)
    handler = AsideHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    handler.addFilter(Sparing())
    root, ours = logging.getLogger(), logging.getLogger("evergraph")
    before = root.handlers[:], root.level, ours.level
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        handler.close()  # before anything else is said
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])


def moment(record: logging.LogRecord) -> str:
    """Return when a line was written, in UTC, to a millisecond."""
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{second}.{int(record.msecs):03d}Z"
