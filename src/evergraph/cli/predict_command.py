"""``evergraph predict``: classes of nodes, from a learner."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import typer

from evergraph.cli.id_file import read_ids
from evergraph.cli.learner_target import Target, opened
from evergraph.cli.options import CA, PLUGINS
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.extras import require
from evergraph.core.plugins import load_plugins
from evergraph.core.written_aside import written_aside

AT_ONCE = 1_000  # ids in one question
SUFFIXES = (".csv", ".parquet")


def predict_command(
    target: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    ids: str | None = typer.Argument(
        None,
        help="A file with an id a line or a column 'id'; - is stdin (default: none, for --all).",
    ),
    everything: bool = typer.Option(False, "--all", help="Every node that the learner knows."),
    out: Path | None = typer.Option(
        None, help="The .csv or .parquet to write (default: CSV on stdout)."
    ),
    integers: bool = typer.Option(False, "--integers", help="Ids are whole numbers, not text."),
    token_file: Path | None = typer.Option(
        None, help="With a token that may read (default: none)."
    ),
    ca: Path | None = CA,
    memory_limit: str | None = typer.Option(
        None, help="The most memory to hold, such as 2GB (default: all that it takes)."
    ),
    scratch: Path | None = typer.Option(
        None, help="Folder for what does not stay in memory (default: the system's temporary one)."
    ),
    plugins: list[str] = PLUGINS,
) -> None:
    """Write id, class and probability of each node, as CSV or Parquet.

    Of several labels these with their probabilities, of numbers the number.
    """
    if out is not None and out.suffix not in SUFFIXES:
        raise ConfigurationError(f"--out must end in {' or '.join(SUFFIXES)}, not {out.name!r}")
    if (ids is None) != everything:
        raise ConfigurationError("predict needs a file of ids or --all: one of them, not both")
    wanted = None if ids is None else read_ids(ids, integers=integers)
    load_plugins(plugins)
    with (
        spinner("asking" if "://" in target else "loading torch and the learner"),
        opened(
            target,
            token_file=token_file,
            scope="read",
            memory_limit=memory_limit,
            scratch=scratch,
            ca=ca,
        ) as learner,
    ):
        if wanted is not None:
            rows = [*_blocks(learner, wanted)]  # nothing is written if one id is not known
            told = _Told(
                rows, [row["id"] for row in _each(rows)], [r.get("label", "") for r in _each(rows)]
            )
        else:
            known = learner.every_id()
            told = _Told(_blocks(learner, known), known, learner.classes())
        _write_to(out, told)


@dataclass(frozen=True)
class _Told:
    """Predictions block by block, and the ids and classes among which theirs are."""

    blocks: Iterable[Sequence[dict[str, Any]]]
    ids: Sequence[str | int]
    classes: Sequence[str | int]


def _blocks(learner: Target, ids: Sequence[str | int]) -> Iterator[Sequence[dict[str, Any]]]:
    for start in range(0, len(ids), AT_ONCE):
        yield learner.predict(ids[start : start + AT_ONCE])


def _each(blocks: Iterable[Sequence[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    return (row for block in blocks for row in block)


def _write_to(out: Path | None, told: _Told) -> None:
    """Write block by block; a file is there once all of them are in it."""
    if out is None:
        _write(sys.stdout, told)
    elif out.suffix == ".parquet":
        _write_parquet(out, told)
    else:
        with written_aside(out) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            _write(text, told)
            text.detach()


def _write(file: IO[str], told: _Told) -> None:
    writer = csv.writer(file, lineterminator="\n")
    for number, rows in enumerate(told.blocks or [[]]):
        table = _columns(rows)
        if not number:
            writer.writerow(table)
        if "probability" in table:
            table["probability"] = [f"{share:.6f}" for share in table["probability"]]
        writer.writerows(zip(*table.values(), strict=True))


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return predictions as columns: classes, or labels and numbers as tables of nodes have them.

    >>> _columns([{"id": 1, "labels": ["a", "b"], "probabilities": [0.75, 0.5]}])
    {'id': [1], 'labels': ['a;b'], 'probabilities': ['0.750000;0.500000']}
    """
    ids = [row["id"] for row in rows]
    if not rows or "label" in rows[0]:
        classes, shares = ([row[name] for row in rows] for name in ("label", "probability"))
        return {"id": ids, "class": classes, "probability": shares}
    if "value" in rows[0]:
        return {"id": ids, "target": [row["value"] for row in rows]}
    shares = [";".join(f"{share:.6f}" for share in row["probabilities"]) for row in rows]
    labels = [";".join(map(str, row["labels"])) or ";" for row in rows]
    return {"id": ids, "labels": labels, "probabilities": shares}


def _write_parquet(path: Path, told: _Told) -> None:
    """Write a table; ids and classes stay integers if all of them are, else they are text."""
    require("pyarrow", extra="tables", why=f"writing {path}")
    import pyarrow as pa
    import pyarrow.parquet as parquet

    text, number = pa.string(), pa.float64()
    kinds = {"id": _kind(told.ids), "class": _kind(told.classes), "probability": number}
    kinds |= {"target": number, "labels": text, "probabilities": text}

    def column(name: str, values: list[Any]) -> pa.Array:
        kind = kinds[name]
        return pa.array(map(str, values) if kind == text else values, kind)

    with written_aside(path) as file, ExitStack() as stack:
        writer = None
        for rows in told.blocks or [[]]:
            found = {name: column(name, values) for name, values in _columns(rows).items()}
            if writer is None:
                schema = pa.schema([(name, kinds[name]) for name in found])
                writer = stack.enter_context(parquet.ParquetWriter(file, schema))
            writer.write_table(pa.table(found))


def _kind(values: Sequence[str | int]) -> Any:
    import pyarrow as pa

    whole = values and all(type(value) is int for value in values)
    return pa.int64() if whole else pa.string()
