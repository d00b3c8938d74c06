"""What a plan is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One kind of work, all of it in a run.

    Attributes:
        name: what is done.
        where: ``here`` on the machine that the command runs on, ``everywhere``, or ``link``.
        seconds: how long it takes.
        bytes_moved: over the link of the machine that sends and receives most.
        memory: the most that a machine holds while it is done, everything counted, in bytes.
    """

    name: str
    where: str
    seconds: float
    bytes_moved: float = 0.0
    memory: float = 0.0


def added_up(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return one step of each name, in the order in which they are met first.

    >>> added_up([Step("cut", "here", 1.0, memory=5), Step("cut", "here", 2.0, memory=3)])
    (Step(name='cut', where='here', seconds=3.0, bytes_moved=0.0, memory=5),)
    """
    names = dict.fromkeys((step.name, step.where) for step in steps)
    return tuple(
        Step(
            name,
            where,
            sum(s.seconds for s in steps if (s.name, s.where) == (name, where)),
            sum(s.bytes_moved for s in steps if (s.name, s.where) == (name, where)),
            max(s.memory for s in steps if (s.name, s.where) == (name, where)),
        )
        for name, where in names
    )
