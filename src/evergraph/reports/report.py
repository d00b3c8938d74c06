"""The files that ``evergraph report`` writes.

DIR/report.html                    one page that needs no other file
DIR/report/tables/NAME.csv|md|tex  its tables
DIR/report/figures/NAME.png|svg    its figures
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from evergraph.core.errors import UnknownNameError
from evergraph.core.packages import require
from evergraph.core.safe_files import results_written, written_aside
from evergraph.reports.figures import (
    Picture,
    accuracy_matrix,
    critical_difference,
    learning_curves,
    looks_of,
)
from evergraph.reports.page.page import counted, page, sections_of
from evergraph.reports.run_tables import (
    beyond_table,
    differences_table,
    headline_table,
    memory_table,
    ranks_table,
    summary_table,
    time_table,
)
from evergraph.reports.runs import Finished, Group, grouped, names_of
from evergraph.reports.tables import Table, csv_text, latex, markdown

PAGE, FOLDER = "report.html", "report"
FORMATS = {"csv": csv_text, "md": markdown, "tex": latex}


def write_report(runs: Sequence[Finished], folder: Path, *, against: str | None = None) -> Path:
    """Write the report of runs collected in a folder into it, and return the path of the page.

    The same runs give the same bytes. Tables and figures of an earlier report are removed.
    against: the run that others are compared with, by its name in the report; by default the best.
    """
    require("matplotlib", extra="report", why="a report")
    groups = grouped(runs, folder)
    if against is not None and against not in names_of(groups):
        raise UnknownNameError("run to compare with", against, names_of(groups))
    tables, figures = tables_of(groups, against), gallery(groups)
    title = folder.resolve().name or "runs"
    sections = sections_of(groups, tables, figures)
    text = page(title, counted(groups), sections, command="evergraph report")
    files = {
        f"tables/{table.name}.{ending}": form(table).encode()
        for table in tables.values()
        for ending, form in FORMATS.items()
    }
    for picture in (picture for section in figures.values() for picture in section):
        files[f"figures/{picture.name}.png"] = picture.png
        files[f"figures/{picture.name}.svg"] = picture.svg.encode()
    with results_written(folder / FOLDER):
        for name, content in files.items():
            path = folder / FOLDER / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        patterns = [*(f"tables/*.{ending}" for ending in FORMATS), "figures/*.png", "figures/*.svg"]
        for old in (path for pattern in patterns for path in (folder / FOLDER).glob(pattern)):
            if old.relative_to(folder / FOLDER).as_posix() not in files:
                old.unlink()
    with results_written(folder / PAGE), written_aside(folder / PAGE) as file:
        file.write(text.encode())
    return folder / PAGE


def tables_of(groups: Sequence[Group], against: str | None = None) -> dict[str, Table]:
    """Return every table with content by name; against: see ``write_report``."""
    made = [headline_table(groups), summary_table(groups)]
    if any(len(group.entries) > 1 for group in groups):  # else there is nothing to compare
        made += [differences_table(groups, against), ranks_table(groups)]
    made += [beyond_table(groups), memory_table(groups), time_table(groups)]
    return {table.name: table for table in made if table is not None}


def gallery(groups: Sequence[Group]) -> dict[str, list[Picture]]:
    """Draw all figures, by section of the page; a method has the same look in all of them.

    Ranks are drawn for each setting with several datasets and each way of testing.
    """
    looks = looks_of(names_of(groups))
    drawn: dict[str, list[Picture]] = defaultdict(list)
    for group in groups:
        drawn["curves"].append(learning_curves(group, looks))
        drawn["matrices"] += [accuracy_matrix(group, entry) for entry in group.entries]
    if any(len(group.entries) > 1 for group in groups):  # else there is nothing to compare
        from evergraph.reports.comparing import standings

        drawn["ranks"] = list(map(critical_difference, standings(groups)))
    return drawn
