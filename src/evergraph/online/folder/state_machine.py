"""What a folder must know of a learner to keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from evergraph.online.alarms import Alarm
from evergraph.online.delta import Delta, DeltaResult


class StateMachine(Protocol):
    """A learner whose state follows from its parameters and its deltas, bit for bit.

    The same deltas in the same order give the same state, however often ``state`` was asked for in
    between, and whether or not ``restore`` took a state back in between.
    """

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What it was constructed with, as JSON can hold it."""
        ...

    def check(self, delta: Delta) -> Delta:
        """Return a delta as ``apply`` takes it; raise unless that will succeed; change nothing."""
        ...

    def apply(self, delta: Delta) -> DeltaResult:
        """Take a delta in, looking at it first unless it is one that ``check`` returned."""
        ...

    def alarms(self) -> Sequence[Alarm]:
        """Return what is no longer as it was."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the arrays of the state; they may still be in use."""
        ...

    def about(self) -> dict[str, Any]:
        """Return the rest of the state, as JSON can hold it."""
        ...

    def restore(self, state: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Take back what ``state`` and ``about`` returned; the tensors are given away."""
        ...
