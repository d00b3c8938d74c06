"""Count the files of evergraph that four ways through it enter.

A file counts as soon as one of its functions is called, on any thread; importing it does not count,
nor does the body of a class. What makes things ready (a stream of tasks, a service that has learned
fifty nodes) is not counted either::

    python scripts/trace_ways.py             # how many files, by package
    python scripts/trace_ways.py --files     # and which, with how many calls

``run`` is ``evergraph run`` with `tem` on a small graph, from the command line to the report.
``delta`` is five nodes that are sent to a service as JSON, ``prediction`` a question about one.
``auto`` is the default method, which learns a task and is asked.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import evergraph

SOURCE = f"{Path(evergraph.__file__).parent}/"
Calls = Counter[str]


@contextmanager
def counted() -> Iterator[Calls]:
    """Count the calls into each file of the source, by threads that begin inside the block."""
    calls: Calls = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # The body of a class or a module has no locals of its own: it runs when it is imported.
        is_call = event == "call" and code.co_flags & inspect.CO_NEWLOCALS
        if is_call and code.co_filename.startswith(SOURCE):
            calls[code.co_filename.removeprefix(SOURCE)] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def run_way(stack: ExitStack) -> Callable[[], object]:
    """A small run of `tem`."""
    from typer.testing import CliRunner

    from evergraph.cli.app import app

    out = stack.enter_context(tempfile.TemporaryDirectory())
    arguments = f"run --dataset synthetic --method tem --epochs 2 --out {out}/run".split()

    def go() -> None:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output

    return go


def delta_way(stack: ExitStack) -> Callable[[], object]:
    """Five nodes for a service that knows fifty."""
    client = _service(stack)
    return lambda: client.post("/v1/deltas", json=_nodes(50, 55)).raise_for_status()


def prediction_way(stack: ExitStack) -> Callable[[], object]:
    """One node, asked of a service that knows fifty."""
    client = _service(stack)
    return lambda: client.post("/v1/predictions", json={"ids": ["n7"]}).raise_for_status()


def _service(stack: ExitStack) -> Any:
    """Return a client of a service that knows fifty nodes."""
    from fastapi.testclient import TestClient

    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.learner import OnlineLearner
    from evergraph.server.app import create_app

    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "learner"
    client = TestClient(
        create_app(LearnerFolder.open(path, make=OnlineLearner)), base_url="http://127.0.0.1:8000"
    )
    stack.enter_context(client)
    client.post("/v1/deltas", json=_nodes(0, 50)).raise_for_status()
    return client


def _nodes(start: int, stop: int) -> dict[str, Any]:
    numbers = range(start, stop)
    return {
        "nodes": [f"n{i}" for i in numbers],
        "features": [[float(i % 2), float(i % 3), 1.0] for i in numbers],
        "labels": ["ab"[i % 2] for i in numbers],
        "edges": [[f"n{i}", f"n{i - 3}"] for i in numbers if i >= 3],
    }


def auto_way(stack: ExitStack) -> Callable[[], object]:
    """A task that the default method learns, and one question."""
    from evergraph.core.seeding import seeded
    from evergraph.datasets import load
    from evergraph.methods import Auto
    from evergraph.streams import GraphStream
    from evergraph.training import Trainer

    stream = GraphStream(load("synthetic"))
    task = stream.open(0, cumulative=Auto.cumulative, sight=None)
    learner = Auto(trainer=Trainer(device="cpu"), generator=seeded(0, "learner"))

    def go() -> None:
        learner.fit_task(task)
        learner.logits(task.graph, torch.arange(5))

    return go


WAYS: dict[str, Callable[[ExitStack], Callable[[], object]]] = {
    "run": run_way,
    "delta": delta_way,
    "prediction": prediction_way,
    "auto": auto_way,
}


def traced(way: str) -> Calls:
    """Go a way; return the calls into each file."""
    with ExitStack() as stack, counted() as calls:
        go = WAYS[way](stack)
        calls.clear()
        go()
        return Counter(calls)


def main() -> None:
    """Say how many files each way enters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", help=f"of {', '.join(WAYS)}; all unless given")
    parser.add_argument("--files", action="store_true", help="name the files")
    options = parser.parse_args()
    for way in options.ways or WAYS:
        calls = traced(way)
        packages = Counter(name.split("/")[0] for name in calls)
        listed = ", ".join(f"{name} {count}" for name, count in packages.most_common())
        print(f"{way}: {len(calls)} files ({listed})")
        if options.files:
            for name in sorted(calls):
                print(f"{calls[name]:8,} {name}")


if __name__ == "__main__":
    main()
