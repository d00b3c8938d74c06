"""A learner of three numbers, and folders that hold it."""

from __future__ import annotations

import json

import torch

from evergraph.core.errors import DataError
from evergraph.online.delta import Delta, DeltaResult
from evergraph.online.folder.learner_folder import LearnerFolder
from waiting import until


class StandIn:
    """A running sum that depends on every bit of every delta and on their order."""

    def __init__(self, *, decay: float = 0.9) -> None:
        self.decay = decay
        self.total = torch.zeros(3)
        self.names: list[str | int] = []
        self.seq = 0

    @property
    def parameters(self):
        return {"decay": self.decay}

    def check(self, delta: Delta) -> Delta:
        if "refused" in delta.nodes or any(node in self.names for node in delta.nodes):
            raise DataError(f"{delta.nodes[0]!r} is refused")
        return delta

    def apply(self, delta: Delta) -> DeltaResult:
        self.total.mul_(self.decay)  # in place: a snapshot must not follow
        if "breaks" in delta.nodes:
            raise MemoryError("no more of it")
        self.total += delta.features.sum(0)
        self.names += delta.nodes
        self.seq += 1
        return DeltaResult(seq=self.seq, new_nodes=len(delta.nodes), recomputed=len(self.names))

    def alarms(self):
        return ()

    def state(self):
        return {"total": self.total, "same": self.total, "turned": torch.ones(2, 3).t()}

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
    learner = StandIn()
    for seq in range(1, number + 1):
        learner.apply(delta(seq))
    return bits(learner)


def opened(path, **options) -> LearnerFolder:
    return LearnerFolder.open(path, make=StandIn, **{"snapshot_every": 10**6} | options)


def filled(path, number: int, *, compact_at: tuple[int, ...] = ()) -> None:
    with opened(path) as folder:
        for seq in range(1, number + 1):
            folder.submit(delta(seq, key=f"k{seq}"))
            if seq in compact_at:
                assert folder.compact() == seq


def wait_for_snapshot(folder: LearnerFolder, *, after: int = 0) -> None:
    """Return when the background has taken a snapshot later than this one."""
    until(lambda: folder.status().snapshot > after)
