"""``evergraph report``: finished runs side by side."""

from __future__ import annotations

from pathlib import Path

import typer

from evergraph.cli.output import print_table


def report_command(
    folder: Path = typer.Argument(Path("runs"), help="A results folder, or one that holds some."),
) -> None:
    """Compare the finished runs below a folder: a table here, pictures in the folder."""
    from evergraph.reports import (
        COLUMNS,
        MEMORY_COLUMNS,
        collect,
        comparison,
        memory_comparison,
        plot_accuracy_matrices,
        plot_learning_curves,
    )

    runs = collect(folder)
    print_table(COLUMNS, comparison(runs), "class-balanced accuracy in percent, mean ± deviation")
    title = "kept between tasks: float32 values as the paper counts them, edges, bytes"
    print_table(MEMORY_COLUMNS, memory_comparison(runs), title)
    curves, matrices = folder / "learning_curves.png", folder / "accuracy_matrices.png"
    plot_learning_curves(runs, curves)
    plot_accuracy_matrices(runs, matrices)
    typer.echo(f"pictures: {curves} and {matrices}")
