"""Which differences between runs are more than chance."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.reports.comparing import Differences, differences_in, points
from evergraph.reports.runs import Entry, Group
from evergraph.reports.tables.record import NAMED, Cell, Column, Table, named
from evergraph.reports.trials import TESTINGS

COLUMNS = (
    *NAMED,
    *(
        column
        for way in TESTINGS
        for column in (
            Column(f"difference {way}", (f"difference {way}", f"low {way}", f"high {way}")),
            Column(f"p {way}", (f"p {way}", f"corrected p {way}")),
            Column(f"verdict {way}"),
        )
    ),
)


def differences_table(groups: Sequence[Group], against: str | None = None) -> Table | None:
    """Return a row a run; None where no run has another one beside it.

    against: the name of the run to compare with; the best of each group unless given, and where
    it was not run.
    """
    shown = [group for group in groups if len(group.entries) > 1]
    if not shown:
        return None
    best = "the best of its dataset and setting"
    pairs = "all pairs of a dataset and setting"
    caption = (
        f"How far the average of a run is from that of {against or best}, in percentage points, "
        "with its 95 % confidence interval over seeds (Student's t; paired where seeds are the "
        f"same) and p, both corrected by Holm for {'these comparisons' if against else pairs}. "
        "Better and worse are said where p is below 0.05. One seed shows no spread, and identical "
        "repeats count as one; runs on other streams, splits or whole test sets are not comparable."
    )
    return Table("differences", caption, COLUMNS, tuple(_block(g, against) for g in shown))


def _block(group: Group, against: str | None) -> tuple[tuple[Cell, ...], ...]:
    found = [differences_in(group, testing, against) for testing in TESTINGS]
    return tuple(
        (*named(group, entry), *(cell for each in found for cell in _cells(each, entry)))
        for entry in group.entries
    )


def _cells(differences: Differences, entry: Entry) -> tuple[Cell, Cell, Cell]:
    if entry.name == differences.reference:
        best = differences.means[entry.name] == max(differences.means.values())
        return Cell("-"), Cell("-"), Cell("best" if best else "reference")
    found = differences.found[entry.name]
    gap = differences.means[entry.name] - differences.means[differences.reference]
    if found is None or not found.pairing.shows_spread:
        why = "not comparable" if found is None else found.verdict
        return Cell(points(gap, signed=True), (gap, None, None)), Cell("-"), Cell(why)
    change = found.difference
    told = f"{points(change.mean, signed=True)} ({points(change.low)} to {points(change.high)})"
    p_value = found.p_value
    return (
        Cell(told, (change.mean, change.low, change.high)),
        Cell("< 0.001" if p_value < 0.001 else f"{p_value:.3f}", (change.p_value, p_value)),
        Cell(found.verdict),
    )
