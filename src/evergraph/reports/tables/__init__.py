"""The tables of a report, as records that every format is written from."""

from collections.abc import Callable, Sequence
from functools import partial

from evergraph.reports.runs import Group
from evergraph.reports.tables.accuracy import beyond_table, headline_table, summary_table
from evergraph.reports.tables.comparing import differences_table, ranks_table
from evergraph.reports.tables.costs import (
    budgets_table,
    machine_table,
    memory_table,
    time_table,
    versions_table,
)
from evergraph.reports.tables.record import Cell, Column, Table

__all__ = ["Cell", "Column", "Table", "tables_of"]


def tables_of(groups: Sequence[Group], against: str | None = None) -> dict[str, Table]:
    """Return every table that has something to say, by its name; against: see ``write_report``."""
    makers: tuple[Callable[[Sequence[Group]], Table | None], ...] = (
        headline_table, summary_table, partial(differences_table, against=against), ranks_table,
        beyond_table, budgets_table, memory_table, time_table, versions_table, machine_table,
    )  # fmt: skip
    made = (make(groups) for make in makers)
    return {table.name: table for table in made if table is not None}
