"""A learner of three numbers, and folders that hold it."""

import json
from collections.abc import Sequence
from types import SimpleNamespace

import torch

from evergraph.core.errors import DataError
from evergraph.online.checking import CheckedDelta
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.folder.snapshot import publish, write_aside
from waiting import until


class StandIn:
    """A running sum that depends on every bit of every delta, their order and their batches."""

    def __init__(self, *, decay: float = 0.9) -> None:
        self.decay = decay
        self.total = torch.zeros(3)
        self.names: list[str | int] = []
        self.seq = 0

    @property
    def parameters(self):
        return {"decay": self.decay}

    def check(self, delta: Delta, ahead=()) -> CheckedDelta:
        known = [*self.names, *(ahead or ())]
        if "refused" in delta.nodes or any(node in known for node in delta.nodes):
            raise DataError(f"{delta.nodes[0]!r} is refused")
        none = torch.empty(0, dtype=torch.int64)
        places = {"cut": none, "renewed": none, "labelled": none, "gone": none}
        ends = torch.empty(2, 0, dtype=torch.int64)
        return CheckedDelta(**vars(delta), first=len(known), ends=ends, weighed=None, **places)

    def apply(self, delta: Delta) -> DeltaResult:
        return self.apply_batch([delta])[0]

    def apply_batch(self, deltas: Sequence[Delta]) -> list[DeltaResult]:
        self.total.mul_(self.decay)  # in place: a snapshot must not follow; once for all of them
        return [self._add(delta) for delta in deltas]

    def _add(self, delta: Delta) -> DeltaResult:
        if "breaks" in delta.nodes:
            raise MemoryError("no more of it")
        self.total += delta.features.sum(0)
        self.names += delta.nodes
        self.seq += 1
        return DeltaResult(seq=self.seq, new_nodes=len(delta.nodes), recomputed=len(self.names))

    def alarms(self):
        return ()

    def status(self):
        return SimpleNamespace(features=3 if self.seq else 0)

    def state(self):
        return {"total": self.total, "same": self.total, "turned": torch.ones(2, 3).t()}

    def packed(self):
        return None  # it forgets nobody

    def about(self):
        return {"names": self.names, "seq": self.seq}

    def restore(self, state, about):
        self.total, self.names, self.seq = state["total"], about["names"], about["seq"]


def delta(number: int, *, key: str | None = None) -> Delta:
    features = torch.arange(3.0).view(1, 3).add(number).reciprocal()
    return Delta(nodes=(f"n{number}",), features=features, key=key)


def bits(learner) -> tuple[bytes, str]:
    return learner.total.numpy().tobytes(), json.dumps(learner.about())


def twin(number: int) -> tuple[bytes, str]:
    return twin_of([[seq] for seq in range(1, number + 1)])


def twin_of(batches: Sequence[Sequence[int]]) -> tuple[bytes, str]:
    """Return the bits of a learner that was given deltas in these batches."""
    learner = StandIn()
    for batch in batches:
        learner.apply_batch([delta(seq) for seq in batch])
    return bits(learner)


def opened(path, **options) -> LearnerFolder:
    return LearnerFolder.open(path, make=StandIn, **{"snapshot_every": 10**6} | options)


def filled(path, number: int, *, compact_at: tuple[int, ...] = ()) -> None:
    with opened(path) as folder:
        for seq in range(1, number + 1):
            folder.submit(delta(seq, key=f"k{seq}"))
            if seq in compact_at:
                assert folder.compact() == seq


def holds(path, number: int) -> bool:
    """Whether a folder opens as a learner that was given so many deltas."""
    with opened(path) as folder:
        return bits(folder.learner) == twin(number)


def failing(patch, error: BaseException, *names: str) -> None:
    """Have learners fail to apply batches that begin with one of these nodes."""
    apply_batch = StandIn.apply_batch

    def fail(self, deltas):
        if set(names) & set(deltas[0].nodes):
            raise error
        return apply_batch(self, deltas)

    patch.setattr(StandIn, "apply_batch", fail)


def write_snapshot(folder, seq: int, state, about):
    """Write a snapshot as a folder does; return its place."""
    return publish(write_aside(folder, seq, state, about), seq)


def wait_for_snapshot(folder: LearnerFolder, *, after: int = 0) -> None:
    """Return when the background has taken a snapshot later than this one."""
    until(lambda: folder.status().snapshot > after)
