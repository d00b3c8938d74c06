"""``evergraph split``: a graph cut into folders of rows, for machines of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from evergraph.cli.output import print_json, print_table
from evergraph.cli.plugin_option import PLUGINS
from evergraph.cli.progress import spinner
from evergraph.cli.stage_progress import StageProgress
from evergraph.core.errors import DataError
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    from evergraph.graphs.split_folder import SplitFolder


def split_command(
    dataset: str = typer.Argument(..., help="A dataset's name, or the path of a graph."),
    parts: int = typer.Option(..., help="How many folders to write."),
    out: Path = typer.Option(..., help="The folder to create."),
    directed: bool = typer.Option(False, "--directed", help="Keep edges in one direction."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace an existing graph."),
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Cut a graph by rows into parts that need not lie on one machine.

    Each part holds the edges into its nodes, their features and labels, and about as many edges
    as every other part. Copy the parts to the machines that shall work on them, under the same
    path, and split.json to all; evergraph embed then works on each part where it is. A graph
    folder that was being split when the command was stopped is split on by the same command.
    """
    try:
        split = _split(dataset, parts, out, directed, overwrite, plugins)
    except KeyboardInterrupt:
        typer.echo("interrupted: give the same command again to go on", err=True)
        raise typer.Exit(130) from None
    rows = [(part.path.name, part.start, part.stop, part.entries) for part in split.parts]
    names = ("part", "first_node", "end", "edges")
    if as_json:
        facts = {"folder": str(out), "nodes": split.nodes, "edges": split.entries}
        print_json(facts | {"parts": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    shown = [(name, *(f"{number:,}" for number in numbers)) for name, *numbers in rows]
    print_table(names, shown, str(out))
    typer.echo(f"embed it with: evergraph embed {out} --out {out}-embedded")


def _split(
    dataset: str, parts: int, out: Path, directed: bool, overwrite: bool, plugins: list[str]
) -> SplitFolder:
    with spinner(f"loading torch and {dataset}"):
        from evergraph.core.file_lock import one_at_a_time
        from evergraph.datasets import load
        from evergraph.graphs.split_folder import is_split_folder, write_split

        if is_split_folder(out) and not overwrite:
            raise DataError(f"{out}: holds a split graph already: replace it with --overwrite")
        load_plugins(plugins)
        graph = load(dataset, undirected=not directed)
    with one_at_a_time(out), StageProgress({"split": "rows"}) as progress:
        return write_split(graph, out, parts=parts, on_progress=progress.on_progress)
