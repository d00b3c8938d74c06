"""A process that writes deltas into a learner's folder until it is killed."""

from __future__ import annotations

import hashlib
import json
import os
import pkgutil
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from evergraph.core.errors import ResourceError
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner

BEGUN = b"begun"
PER_DELTA = 3  # nodes
FEATURES = 8


def make() -> OnlineLearner:
    """Return a small learner that has seen nothing."""
    return OnlineLearner(head=FusedHead(width=64))


def delta(number: int) -> Delta:
    """Return delta 1, 2, ...: new nodes and edges, a late label, now and then all else."""
    generator = torch.Generator().manual_seed(number)
    nodes = [f"{number}-{place}" for place in range(PER_DELTA)]
    edges = [(nodes[0], nodes[1]), (nodes[1], nodes[2])]
    known = torch.randint(1, max(number, 2), (2,), generator=generator).tolist()
    edges += [(nodes[0], f"{other}-0") for other in set(known) if other < number]
    return Delta(
        nodes=nodes,
        features=torch.randn(PER_DELTA, FEATURES, generator=generator),
        labels=[f"class {number % 5}", None, f"class {number % 3}"],
        edges=edges,
        late=[(f"{number - 1}-1", f"class {number % 4}")] if number > 1 else [],
        forgotten=[f"{number - 3}-2"] if number % 4 == 0 else [],
        weights=[1 / (1 + place) for place in range(len(edges))] if number % 5 == 2 else [],
        removed_edges=[(f"{number - 1}-1", f"{number - 1}-0")] if number % 3 == 0 else [],
        updated=[f"{number - 1}-0"] if number % 3 == 2 else [],
        updated_features=torch.randn(int(number % 3 == 2), FEATURES, generator=generator),
        key=f"delta {number}",
    )


def plain(number: int) -> Delta:
    """Return delta 1, 2, ... without what begins a batch of its own."""
    whole = delta(number)
    return Delta(
        nodes=whole.nodes,
        features=whole.features,
        labels=whole.labels,
        edges=whole.edges,
        late=[(f"{number - 4}-1", f"class {number % 4}")] if number > 4 else [],
        key=whole.key,
    )


def given(number: int, together: int) -> list[Delta]:
    """Return the deltas from a number on that are submitted at once."""
    if together == 1:
        return [delta(number)]
    return [plain(each) for each in range(number, number + together)]


def digest(learner: OnlineLearner, seq: int) -> str:
    """Return a checksum of every bit of a learner after ``seq`` deltas, and of its predictions."""
    total = hashlib.sha256(json.dumps(learner.about(), sort_keys=True).encode())
    state = learner.state()
    for name in sorted(state):
        total.update(name.encode() + state[name].contiguous().numpy().tobytes())
    if seq:
        classes, shares = learner.predict_proba([f"{number}-0" for number in range(1, seq + 1)])
        total.update(repr(classes).encode() + shares.contiguous().numpy().tobytes())
    return total.hexdigest()


def write(
    path: Path,
    first: int,
    told: Connection,
    every: int,
    fatal: tuple[str, int],
    together: int = 1,
    failing: tuple[str, int] = ("", 0),
) -> None:
    """Submit deltas from ``first`` on, for ever, and tell the number of each that is safe.

    every: deltas between snapshots. fatal: a function and the call of it that is the last thing
    this process does; none if the name is empty. together: how many are submitted at once.
    failing: a function and the call of it for which the memory does not suffice.
    """
    torch.set_num_threads(1)
    if failing[0]:
        _at(*failing, _fail)
    if fatal[0]:
        _at(*fatal, _die)
    told.send_bytes(BEGUN)
    folder = LearnerFolder.open(path, make=make, snapshot_every=every)
    number = first
    while True:
        answers = folder.submit_many(given(number, together))
        if failing[0] and isinstance(answers[0], ResourceError):
            continue  # it was set aside, and is sent again
        for applied in answers:
            assert isinstance(applied, DeltaResult), f"delta {number} was refused: {applied}"
            assert applied.seq == number, f"delta {number} came out as {applied.seq}"
            number += 1
        told.send_bytes(b"%d" % (number - 1))


def _at(name: str, call: int, happen: Callable[[], None]) -> None:
    """Have something happen when a function is called for the n-th time."""
    module, _, path = name.partition(":")
    owner = pkgutil.resolve_name(f"{module}:{path.rpartition('.')[0]}".rstrip(":"))
    attribute, calls = path.rpartition(".")[2], iter(range(1, 1 << 62))
    function = getattr(owner, attribute)

    def fateful(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            happen()
        return function(*args, **kwargs)

    setattr(owner, attribute, fateful)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail() -> None:
    raise MemoryError
