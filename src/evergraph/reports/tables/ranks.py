"""Mean ranks of methods over datasets."""

from __future__ import annotations

from collections.abc import Sequence

from evergraph.evaluation.statistics import LEAST_PAIRS
from evergraph.reports.comparing import Standing, listed, p_text, standings
from evergraph.reports.runs import Group
from evergraph.reports.tables.record import Cell, Column, Table

COLUMNS = (
    Column("method"),
    Column("setting"),
    Column("testing"),
    Column("datasets", ("datasets",)),
    Column("mean rank", ("mean rank",)),
    Column("critical difference", ("critical difference",)),
    Column("Friedman p", ("Friedman p",)),
    Column("from the best"),
)


def ranks_table(groups: Sequence[Group]) -> Table | None:
    """Return a row a method, setting and way of testing; None where there are too few datasets."""
    found = standings(groups)
    if not found:
        return None
    caption = (
        "Mean ranks over datasets, 1 being the best. Methods differ at all where Friedman's p is "
        f"below 0.05 over at least {LEAST_PAIRS} datasets; then two of them differ where their "
        f"mean ranks are farther apart than Nemenyi's critical difference.{_left_out(found)}"
    )
    return Table("ranks", caption, COLUMNS, tuple(map(_block, found)))


def _left_out(found: Sequence[Standing]) -> str:
    names = sorted({name for standing in found for name in standing.left_out})
    if not names:
        return ""
    return f" Left out, since not run on every dataset or not comparable: {listed(names)}."


def _block(standing: Standing) -> tuple[tuple[Cell, ...], ...]:
    ranks = standing.ranks
    count, p_value = len(standing.datasets), p_text(ranks.friedman_p).removeprefix("p ")
    return tuple(
        (
            Cell(method),
            Cell(standing.setting),
            Cell(standing.testing),
            Cell(str(count), (count,)),
            Cell(f"{rank:.2f}", (rank,)),
            Cell(f"{ranks.critical_difference:.2f}", (ranks.critical_difference,)),
            Cell(p_value.removeprefix("= "), (ranks.friedman_p,)),
            Cell("best" if not place else _told(standing, place)),
        )
        for place, (method, rank) in enumerate(zip(standing.methods, ranks.mean_ranks, strict=True))
    )


def _told(standing: Standing, place: int) -> str:
    return "worse" if standing.behind(place) else "cannot tell"
