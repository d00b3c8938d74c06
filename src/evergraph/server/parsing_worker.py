"""The process that large bodies are read in: ``python -m evergraph.server.parsing_worker``.

A parser holds Python's global lock for as long as it reads, in a thread too; in a process of its
own it holds nobody up. Requests come on standard input, answers go to standard output, each as a
frame: see ``parsing``. It ends when its input ends, or when nothing has come for a while.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from evergraph.core.errors import EvergraphError
from evergraph.core.extras import installed
from evergraph.online.codecs.delta_bytes import delta_to_bytes
from evergraph.server.bodies import QUESTION, read_delta, read_question
from evergraph.server.frames import Frame, read_frame, write_frame
from evergraph.server.http import status_of
from evergraph.server.predicting import as_json

BLOCK = 1_000  # ids or rows that are written, and read, at once
NICE = 5  # whoever answers small questions goes first


def answered(request: Frame) -> Frame:
    """Return what is answered to a request: what its body says, or why it is refused.

    >>> asked = Frame({"model": QUESTION, "most": 9}, (b'{"ids": ["a"]}',))
    >>> answered(asked)
    Frame(facts={'every_class': False}, parts=(b'["a"]',))
    """
    try:
        return _read(request.facts, request.parts[0])
    except EvergraphError as error:
        return Frame({"refused": status_of(error), "sentence": str(error)})
    except MemoryError:
        return Frame({"memory": True})
    except Exception:
        return Frame({"failed": traceback.format_exc()})


def _read(facts: dict[str, Any], body: bytes) -> Frame:
    most = facts["most"]
    if facts["model"] == QUESTION:
        asked = read_question(body, most=most)
        return Frame({"every_class": asked.every_class}, _blocks(asked.ids))
    found = read_delta(body, model=facts["model"], kind=facts["kind"], most=most)
    told = {"told": dict(found.told)}
    return Frame(told, (delta_to_bytes(found.delta), *_blocks(found.rows)))


def _blocks(values: Sequence[Any]) -> tuple[bytes, ...]:
    """Return values as JSON, some at a time: whoever reads them is not held up for long."""
    starts = range(0, len(values), BLOCK)
    return tuple(as_json(values[start : start + BLOCK]) for start in starts)


def work(requests: BinaryIO, answers: BinaryIO, *, idle: float) -> None:
    """Answer requests until there are no more, or none for ``idle`` seconds."""
    while select.select([requests], [], [], idle)[0]:
        request = read_frame(requests)
        if request is None:
            return
        write_frame(answers, answered(request))


def _limit(memory: int) -> None:
    """Let this process take so many more bytes than it has."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def main() -> None:
    """Read requests from standard input until it ends."""
    orders = json.loads(sys.argv[1])
    os.nice(NICE)
    for package in ("orjson", "pyarrow", "pyarrow.compute"):  # what is loaded is no body's
        if installed(package.split(".")[0]):
            importlib.import_module(package)
    if Path("/proc/self/statm").exists():
        _limit(orders["memory"])
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what is printed by mistake is no answer
    work(requests, answers, idle=orders["idle"])


if __name__ == "__main__":
    main()
