"""Lines of the log: with time, level and the request's id, for people or for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from evergraph.core.errors import UnknownNameError
from evergraph.server.request_ids import REQUEST_ID


class TextLines(logging.Formatter):
    """A line of text: time (UTC), level, logger, the request's id in brackets, and the message.

    Args:
        process: what comes before the message, where several processes write one log.

    >>> record = logging.LogRecord("evergraph.x", 20, "", 0, "delta %d", (7,), None)
    >>> record.created, record.msecs = 0.0, 0.0
    >>> TextLines().format(record)
    '1970-01-01T00:00:00.000Z INFO evergraph.x: delta 7'
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = f"{process}: " if process else ""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return all of it but the trace of an exception."""
        name = REQUEST_ID.get()
        told = record.message.replace("\r", "\\r").replace("\n", "\\n")  # one line, whoever sent it
        asked = f" [{name}]" if name else ""
        head = f"{moment(record)} {record.levelname} {record.name}{asked}"
        return f"{head}: {self._process}{told}"


class JsonLines(logging.Formatter):
    """An object a line: time, level, logger, message, and what else is known.

    >>> record = logging.LogRecord("evergraph.audit", 20, "", 0, "change seq=7", None, None)
    >>> record.created, record.msecs, record.event, record.facts = 0.0, 0.0, "change", {"seq": 7}
    >>> print(JsonLines().format(record))  # doctest: +NORMALIZE_WHITESPACE
    {"time":"1970-01-01T00:00:00.000Z","level":"INFO","logger":"evergraph.audit",
    "message":"change seq=7","event":"change","facts":{"seq":7}}
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        told: dict[str, Any] = {
            "time": moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        found = {"process": self._process, "request_id": REQUEST_ID.get()}
        told |= {name: value for name, value in found.items() if value}
        for name in ("event", "facts"):
            if hasattr(record, name):
                told[name] = getattr(record, name)
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, separators=(",", ":"), default=str)


FORMATS = {"text": TextLines, "json": JsonLines}


def write_log(form: str, *, process: str = "") -> None:
    """Have the log of this process written to stderr in one of the formats."""
    if form not in FORMATS:
        raise UnknownNameError("log format", form, FORMATS)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[form](process))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("evergraph").setLevel(logging.INFO)


def moment(record: logging.LogRecord) -> str:
    """Return when a line was written, in UTC, to a millisecond."""
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{second}.{int(record.msecs):03d}Z"
