"""All figures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evergraph.reports.figures.bars import local_global, time_phases
from evergraph.reports.figures.frontier import BYTES, SECONDS, frontier, memory_accuracy
from evergraph.reports.figures.learning import accuracy_matrix, learning_curves
from evergraph.reports.figures.picture import Picture, looks_of
from evergraph.reports.runs import Group, names_of
from evergraph.reports.units import families, family_of, has_family

MOST_NAMES = 20  # that are readable in one scatter plot


@dataclass(frozen=True)
class Gallery:
    """Figures by kind, in the order of the groups; matrices have an inner tuple per group.

    ``frontier`` covers groups with families of runs, ``memory`` those without too many names.
    ``ranks`` has a figure for each setting with several datasets and each way of testing.
    """

    curves: tuple[Picture, ...]
    local_global: tuple[Picture, ...]
    frontier: tuple[Picture, ...]
    memory: tuple[Picture, ...]
    time: tuple[Picture, ...]
    matrices: tuple[tuple[Picture, ...], ...]
    ranks: tuple[Picture, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All of them."""
        matrices = [picture for group in self.matrices for picture in group]
        first = (*self.curves, *self.local_global, *self.frontier)
        return (*first, *self.memory, *self.time, *matrices, *self.ranks)


def gallery(groups: Sequence[Group]) -> Gallery:
    """Draw all figures; a method has the same look in all of them."""
    names = names_of(groups)
    kin = sorted({family_of(name) for name in names})
    looks = looks_of([*kin, *(name for name in names if name not in kin)])
    ranks: tuple[Picture, ...] = ()
    if any(len(group.entries) > 1 for group in groups):  # else there is nothing to compare
        from evergraph.reports.comparing import standings
        from evergraph.reports.figures.critical_difference import critical_difference

        ranks = tuple(map(critical_difference, standings(groups)))
    return Gallery(
        curves=tuple(learning_curves(group, looks) for group in groups),
        local_global=tuple(local_global(group) for group in groups),
        frontier=tuple(
            frontier(group, looks, price)
            for group in groups
            if has_family(group)
            for price in (BYTES, SECONDS)
        ),
        memory=tuple(
            memory_accuracy(group, looks, testing)
            for group in groups
            if len(families(group)) <= MOST_NAMES
            for testing in ("local", "global")
        ),
        time=tuple(time_phases(group) for group in groups),
        matrices=tuple(
            tuple(accuracy_matrix(group, entry) for entry in group.entries) for group in groups
        ),
        ranks=ranks,
    )
