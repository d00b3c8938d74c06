"""``evergraph report``: finished runs side by side."""

from __future__ import annotations

from pathlib import Path

import typer

from evergraph.cli.output import print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.extras import require
from evergraph.core.written_aside import check_writable


def report_command(
    folder: Path = typer.Argument(Path("runs"), help="A results folder, or one that holds some."),
    against: str | None = typer.Option(
        None, help="The method that differences are told from (default: the best)."
    ),
) -> None:
    """Compare the finished runs in a folder: tables here, and a page in the folder.

    DIR/report.html holds everything and opens offline; its tables (CSV, Markdown, LaTeX) and
    figures (PNG, SVG) are also in DIR/report.
    """
    require("matplotlib", extra="report", why="evergraph report")
    from evergraph.reports import collect, comparison, memory_comparison, write_report

    runs = collect(folder)
    check_writable(folder)
    with spinner("drawing the report"):
        path = write_report(
            runs, folder, against=against
        )  # before anything is printed: that may fail
    for table in (comparison(runs), memory_comparison(runs)):
        print_table(table.headings, table.texts, table.caption)
    say(f"tables and figures: {path.with_suffix('')}")
    say(f"report: {path}")
