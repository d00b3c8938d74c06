"""What the runs were made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from evergraph.reports.groups import Group
from evergraph.reports.tables.record import Cell, Column, Table, numbers


def versions_table(groups: Sequence[Group]) -> Table:
    """Return a row for each combination of versions, and how many runs were made with it."""
    made = [entry.run.result["versions"] for group in groups for entry in group.entries]
    names = list(dict.fromkeys(name for versions in made for name in versions))
    times = Counter(tuple(versions.get(name, "-") for name in names) for versions in made)
    rows = tuple(
        (*map(Cell, versions), Cell(str(count), (count,)))
        for versions, count in sorted(times.items())
    )
    columns = (*map(Column, names), *numbers(("runs",)))
    caption = "Versions the runs were made with."
    return Table("versions", caption, columns, (rows,) if rows else ())
