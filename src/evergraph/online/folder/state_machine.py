"""What a folder must know of a learner to keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from evergraph.online.alarms import Alarm
from evergraph.online.checking import CheckedDelta
from evergraph.online.delta import Delta, DeltaResult, Label, NodeId
from evergraph.online.pieces import PackedState


class StateMachine(Protocol):
    """A learner whose state follows from its parameters and its deltas, bit for bit.

    The same deltas in the same batches and order give the same state, however often ``state`` was
    asked for in between, and whether or not ``restore`` took a state back in between.
    """

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What it was constructed with, as JSON can hold it."""
        ...

    def check(self, delta: Delta, ahead: Mapping[NodeId, int] | None = None) -> CheckedDelta:
        """Return a delta as ``apply_batch`` takes it; raise unless that will succeed; change
        nothing.

        ahead: nodes that come with earlier deltas of the same batch, and their positions.
        """
        ...

    def apply_batch(self, deltas: Sequence[Delta]) -> list[DeltaResult]:
        """Take deltas in as one change, looking first at those that ``check`` did not return."""
        ...

    def unused_names(self) -> dict[Label, Label]:
        """Return names of classes that no node has, and what to call them instead."""
        ...

    def rename(self, names: Mapping[Label, Label], *, seq: int) -> None:
        """Call such classes by other names, which counts as delta ``seq``."""
        ...

    def alarms(self) -> Sequence[Alarm]:
        """Return the alarm that is raised, if one is."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the arrays of the state; they may still be in use."""
        ...

    def about(self) -> dict[str, Any]:
        """Return the rest of the state, as JSON can hold it."""
        ...

    def packed(self) -> PackedState | None:
        """Return the same learner without places of forgotten nodes; None where there are none."""
        ...

    def restore(self, state: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Take back what ``state`` and ``about`` returned; the tensors are given away."""
        ...
