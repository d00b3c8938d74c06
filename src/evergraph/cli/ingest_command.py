"""``evergraph ingest``: tables of nodes and edges into a learner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from evergraph.cli.learner_target import opened
from evergraph.cli.output import print_json
from evergraph.cli.progress import spinner
from evergraph.cli.stage_progress import StageProgress


def ingest_command(
    target: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    nodes: Path = typer.Option(..., help="A .csv or .parquet of id, label if known, features."),
    edges: Path | None = typer.Option(None, help="The same of source, target."),
    batch: int = typer.Option(100, help="How many nodes are taken in at once."),
    integers: bool = typer.Option(False, "--integers", help="Ids in a CSV are whole numbers."),
    token_file: Path | None = typer.Option(None, help="With a token that may write."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Take in nodes in the order of their rows, each with its edges to nodes before it.

    Given again, the same command goes on where it was stopped: what was taken in counts once.
    """
    try:
        done = _ingest(target, nodes, edges, batch, integers, token_file)
    except KeyboardInterrupt:
        typer.echo("interrupted: give the same command again to go on", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(done)
    else:
        right = (
            f", {done['right']:,} of {done['predicted']:,} predicted right before they were learned"
        )
        typer.echo(
            f"{done['nodes']:,} nodes in {done['deltas']:,} deltas; the learner knows "
            f"{done['classes']:,} classes{right if done['predicted'] else ''}"
        )


def _ingest(
    target: str,
    nodes: Path,
    edges: Path | None,
    batch: int,
    integers: bool,
    token_file: Path | None,
) -> dict[str, Any]:
    with spinner("loading torch"):
        from evergraph.online.table_deltas import read_deltas

        deltas = read_deltas(nodes, edges, batch=batch, integers=integers)
    total, done = deltas.nodes.num_rows, 0
    counts = {"predicted": 0, "right": 0, "classes": 0}
    with (
        opened(target, token_file=token_file, scope="write") as learner,
        StageProgress({"ingest": "nodes"}) as progress,
    ):
        for delta in deltas:
            applied = learner.submit(delta)
            for name in ("predicted", "right"):
                counts[name] += _of(applied, name)
            counts["classes"] = _of(applied, "classes")
            done += len(delta.nodes)
            progress.on_progress("ingest", done, total)
    return {"nodes": total, "deltas": len(deltas)} | counts


def _of(applied: Any, name: str) -> int:
    """Return a number of what a folder or a service answered."""
    return int(applied[name] if isinstance(applied, dict) else getattr(applied, name))
