"""Tables of significant differences between runs, and of mean ranks over datasets."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.evaluation.statistics import LEAST_PAIRS
from evergraph.reports.comparing import GroupDifferences, differences_in, listed, points, standings
from evergraph.reports.runs import TESTINGS, Entry, Group, p_text
from evergraph.reports.tables.record import NAMED, Cell, Table, TableColumn, named, numbers

DIFFERENCE_COLUMNS = (
    *NAMED,
    *(
        column
        for way in TESTINGS
        for column in (
            TableColumn(f"difference {way}", (f"difference {way}", f"low {way}", f"high {way}")),
            TableColumn(f"p {way}", (f"p {way}", f"corrected p {way}")),
            TableColumn(f"verdict {way}"),
        )
    ),
)
RANK_COLUMNS = (
    TableColumn("method"),
    TableColumn("setting"),
    TableColumn("testing"),
    *numbers(("datasets", "mean rank", "critical difference", "Friedman p")),
    TableColumn("from the best"),
)


def differences_table(groups: Sequence[Group], against: str | None = None) -> Table | None:
    """Return a row per run; None if no group has several runs.

    against: the name of the run to compare with; by default, and in groups without it, the best of
    the group.
    """
    shown = [group for group in groups if len(group.entries) > 1]
    if not shown:
        return None
    best = "the best of its dataset and setting"
    pairs = "all pairs of a dataset and setting"
    caption = (
        f"Difference between the average of a run and that of {against or best}, in percentage "
        "points, with its 95 % confidence interval over seeds (Student's t; paired if seeds are "
        f"shared) and p, both corrected by Holm for {'these comparisons' if against else pairs}. "
        "Better and worse require p below 0.05. One seed shows no spread, and identical "
        "repeats count as one; runs on other streams, splits or whole test sets are not comparable."
    )
    blocks = []
    for group in shown:
        found = [differences_in(group, testing, against) for testing in TESTINGS]
        rows = [
            (*named(group, entry), *(c for each in found for c in _difference_cells(each, entry)))
            for entry in group.entries
        ]
        blocks.append(tuple(rows))
    return Table("differences", caption, DIFFERENCE_COLUMNS, tuple(blocks))


def _difference_cells(differences: GroupDifferences, entry: Entry) -> tuple[Cell, Cell, Cell]:
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


def ranks_table(groups: Sequence[Group]) -> Table | None:
    """Return a row per method, setting and way of testing; None if there are too few datasets."""
    found = standings(groups)
    if not found:
        return None
    names = sorted({name for standing in found for name in standing.left_out})
    left_out = ""
    if names:
        left_out = f" Left out, since not run on every dataset or not comparable: {listed(names)}."
    caption = (
        "Mean ranks over datasets, 1 being the best. Methods differ if Friedman's p is below 0.05 "
        f"over at least {LEAST_PAIRS} datasets; then two of them differ if their mean ranks are "
        f"farther apart than Nemenyi's critical difference.{left_out}"
    )
    blocks = []
    for standing in found:
        ranks, count = standing.ranks, len(standing.datasets)
        p_value = p_text(ranks.friedman_p).removeprefix("p ").removeprefix("= ")
        rows = []
        for place, (method, rank) in enumerate(
            zip(standing.methods, ranks.mean_ranks, strict=True)
        ):
            verdict = "worse" if ranks.differ(0, place) else "cannot tell"
            rows.append(
                (
                    Cell(method),
                    Cell(standing.setting),
                    Cell(standing.testing),
                    Cell(str(count), (count,)),
                    Cell(f"{rank:.2f}", (rank,)),
                    Cell(f"{ranks.critical_difference:.2f}", (ranks.critical_difference,)),
                    Cell(p_value, (ranks.friedman_p,)),
                    Cell(verdict if place else "best"),
                )
            )
        blocks.append(tuple(rows))
    return Table("ranks", caption, RANK_COLUMNS, tuple(blocks))
