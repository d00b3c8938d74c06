"""All figures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evergraph.reports.figures import (
    Picture,
    accuracy_matrix,
    learning_curves,
    local_global,
    memory_accuracy,
    time_phases,
)
from evergraph.reports.figures.look import looks_of
from evergraph.reports.groups import Group, names_of


@dataclass(frozen=True)
class Gallery:
    """Figures by kind, in the order of the groups; matrices have an inner tuple a group."""

    curves: tuple[Picture, ...]
    local_global: tuple[Picture, ...]
    memory: tuple[Picture, ...]
    time: tuple[Picture, ...]
    matrices: tuple[tuple[Picture, ...], ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All of them."""
        matrices = [picture for group in self.matrices for picture in group]
        return (*self.curves, *self.local_global, *self.memory, *self.time, *matrices)


def gallery(groups: Sequence[Group]) -> Gallery:
    """Draw every figure; a method looks the same in all of them."""
    looks = looks_of(names_of(groups))
    return Gallery(
        curves=tuple(learning_curves(group, looks) for group in groups),
        local_global=tuple(local_global(group) for group in groups),
        memory=tuple(
            memory_accuracy(group, looks, testing)
            for group in groups
            for testing in ("local", "global")
        ),
        time=tuple(time_phases(group) for group in groups),
        matrices=tuple(
            tuple(accuracy_matrix(group, entry) for entry in group.entries) for group in groups
        ),
    )
