"""Whether a way to do a job fits, and the smallest change that would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evergraph.core.sizes import shown
from evergraph.experiments.planning.encoding import EMBEDDING
from evergraph.experiments.planning.machine import Machines
from evergraph.experiments.planning.steps import Step

MOST_MACHINES = 1024
MOST_MEMORY = 1 << 46


@dataclass(frozen=True)
class Way:
    """One way to do a job.

    Attributes:
        name: ``one machine``, ``columns``, ``nodes`` or ``rows``.
        steps: what is done, one each of a kind; none where it does not fit.
        memory: the most that a machine holds, in bytes.
        disk: bytes of files beside the graph, on the machine that has most.
        misfit: why it does not fit, and what would make it fit; None if it does.
    """

    name: str
    steps: tuple[Step, ...] = ()
    memory: float = 0.0
    disk: float = 0.0
    misfit: str | None = None

    @property
    def seconds(self) -> float:
        """Of all steps, one after the other."""
        return sum(step.seconds for step in self.steps)

    @property
    def embedding(self) -> float:
        """Seconds of embedding alone."""
        return sum(step.seconds for step in self.steps if step.name.startswith(EMBEDDING))

    @property
    def bytes_moved(self) -> float:
        """Over the link of the busiest machine."""
        return sum(step.bytes_moved for step in self.steps)


Look = Callable[[str, Machines], Way]


def explained(way: Way, machines: Machines, look: Look) -> Way:
    """Return a way that does not fit with the smallest change that would make it fit."""
    if way.misfit is None:
        return way
    more = _least(_doubled(machines.memory, MOST_MEMORY), way.name, look, _with_memory(machines))
    change = (
        "no memory would be enough"
        if more is None
        else f"it would fit with {shown(more)} on each machine{_limited(machines)}"
    )
    if way.name != "one machine":
        grown = _least(
            _doubled(machines.count, MOST_MACHINES),
            way.name,
            look,
            lambda count: replace(machines, count=count),
        )
        change += "" if grown is None else f", or on {grown} machines"
    return replace(way, misfit=f"{way.misfit}; {change}")


def _limited(machines: Machines) -> str:
    return "" if machines.limit is None else ", and as high a limit"


def _with_memory(machines: Machines) -> Callable[[int], Machines]:
    def given(memory: int) -> Machines:
        limit = None if machines.limit is None else memory
        return replace(machines, memory=max(memory, machines.memory), limit=limit)

    return given


def _doubled(start: int, most: int) -> list[int]:
    """Return a value twice, four times, ... as large, up to the most.

    >>> _doubled(3, 30)
    [6, 12, 24]
    """
    found = []
    while 2 * start <= most:
        start *= 2
        found.append(start)
    return found


def _least(
    values: Sequence[int],
    name: str,
    look: Look,
    given: Callable[[int], Machines],
) -> int | None:
    """Return the least of doubled values with which a way fits, to a tenth; None if none does."""
    high = next((v for v in values if look(name, given(v)).misfit is None), None)
    if high is None:
        return None
    low = high // 2
    while high - low > max(high // 10, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if look(name, given(middle)).misfit is None else (middle, high)
    return high
