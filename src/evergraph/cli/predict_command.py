"""``evergraph predict``: classes of nodes, from a learner."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import typer

from evergraph.cli.id_file import read_ids
from evergraph.cli.learner_target import Target, opened
from evergraph.cli.plugin_option import PLUGINS
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.plugins import load_plugins
from evergraph.core.written_aside import written_aside

AT_ONCE = 1_000  # ids in one question
SUFFIXES = (".csv", ".parquet")


def predict_command(
    target: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    ids: str = typer.Argument(..., help="A file with an id a line or a column 'id'; - is stdin."),
    out: Path | None = typer.Option(
        None, help="The .csv or .parquet to write (default: CSV on stdout)."
    ),
    integers: bool = typer.Option(False, "--integers", help="Ids are whole numbers, not text."),
    token_file: Path | None = typer.Option(
        None, help="With a token that may read (default: none)."
    ),
    plugins: list[str] = PLUGINS,
) -> None:
    """Write id, class and probability of each node, as CSV or Parquet.

    Of several labels these with their probabilities, of numbers the number.
    """
    if out is not None and out.suffix not in SUFFIXES:
        raise ConfigurationError(f"--out must end in {' or '.join(SUFFIXES)}, not {out.name!r}")
    wanted = read_ids(ids, integers=integers)
    load_plugins(plugins)
    with (
        spinner("asking" if "://" in target else "loading torch and the learner"),
        opened(target, token_file=token_file, scope="read") as learner,
    ):
        rows = list(_predicted(learner, wanted))  # nothing is written if one id is not known
    if out is None:
        _write(sys.stdout, rows)
    elif out.suffix == ".parquet":
        _write_parquet(out, rows)
    else:
        with written_aside(out) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            _write(text, rows)
            text.detach()


def _predicted(learner: Target, ids: Sequence[str | int]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(ids), AT_ONCE):
        yield from learner.predict(ids[start : start + AT_ONCE])


def _write(file: IO[str], rows: Iterable[dict[str, Any]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    rows = list(rows)
    if rows and "label" not in rows[0]:
        table = _of_targets(rows)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
        return
    writer.writerow(("id", "class", "probability"))
    writer.writerows((row["id"], row["label"], f"{row['probability']:.6f}") for row in rows)


def _of_targets(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of labels or numbers, as tables of nodes have them.

    >>> _of_targets([{"id": 1, "labels": ["a", "b"], "probabilities": [0.75, 0.5]}])
    {'id': [1], 'labels': ['a;b'], 'probabilities': ['0.750000;0.500000']}
    """
    ids = [row["id"] for row in rows]
    if "value" in rows[0]:
        return {"id": ids, "target": [row["value"] for row in rows]}
    shares = [";".join(f"{share:.6f}" for share in row["probabilities"]) for row in rows]
    labels = [";".join(map(str, row["labels"])) or ";" for row in rows]
    return {"id": ids, "labels": labels, "probabilities": shares}


def _write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write a table; ids and classes stay integers if all of them are, else they are text."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    if rows and "label" not in rows[0]:
        with written_aside(path) as file:
            parquet.write_table(pa.table(_of_targets(rows)), file)
        return

    def column(name: str) -> pa.Array:
        values = [row[name] for row in rows]
        whole = values and all(type(value) is int for value in values)
        return pa.array(values, pa.int64()) if whole else pa.array(map(str, values), pa.string())

    shares = pa.array([row["probability"] for row in rows], pa.float64())
    table = pa.table({"id": column("id"), "class": column("label"), "probability": shares})
    with written_aside(path) as file:
        parquet.write_table(table, file)
