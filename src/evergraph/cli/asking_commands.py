"""``evergraph predict``, ``explain`` and ``suggest``: queries to a learner."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from evergraph.cli import options
from evergraph.cli.inputs import read_ids
from evergraph.cli.learner_target import Target, opened
from evergraph.cli.options import argument, flag, option
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.extras import require
from evergraph.core.plugins import load_plugins
from evergraph.core.written_aside import written_aside

AT_ONCE = 1_000  # ids in one question
SUFFIXES = (".csv", ".parquet")
Rows = Sequence[dict[str, Any]]  # predictions as the service returns them
SHOWN = 3  # classes shown in a table
PARTS = ("id", "known", "classes", "probabilities", "scores", "voices", "others", "rest")
COLUMNS = ("id", "gain", "reach", "uncertainty", "first", "second")


def predict_command(
    target: options.LearnerTarget,
    ids: str | None = argument(
        "File of ids, one a line or in a column 'id'; - is stdin (default: none, for --all).",
        default=None,
    ),
    everything: bool = flag("--all", "Predict every node of the learner."),
    out: Path | None = option("The .csv or .parquet to write (default: CSV on stdout)."),
    integers: bool = flag("--integers", "Ids are integers, not text."),
    token_file: options.TokenFile = None,
    ca: options.CA = None,
    plugins: options.Plugins = [],
) -> None:
    """Write each node's id, class and probability, as CSV or Parquet.

    Multi-label learners write every label with its probability; regression writes the value.
    """
    if out is not None and out.suffix not in SUFFIXES:
        raise ConfigurationError(f"--out must end in {' or '.join(SUFFIXES)}, not {out.name!r}")
    if (ids is None) != everything:
        raise ConfigurationError("predict needs either a file of ids or --all")
    wanted = None if ids is None else read_ids(ids, integers=integers)
    with _asked(target, token_file, ca, plugins) as learner:
        known = learner.every_id() if wanted is None else wanted
        starts = range(0, len(known), AT_ONCE)
        blocks: Iterable[Rows] = (learner.predict(known[at : at + AT_ONCE]) for at in starts)
        if wanted is not None:
            blocks = list(blocks)  # nothing is written if any id is unknown
            classes = [row.get("label", "") for block in blocks for row in block]
        else:
            classes = learner.classes()
        blocks = blocks or [[]]
        if out is not None and out.suffix == ".parquet":
            _write_parquet(out, blocks, known, classes)
            return
        with _csv_writer(out) as writer:
            for number, table in enumerate(map(_columns, blocks)):
                if not number:
                    writer.writerow(table)
                if "probability" in table:
                    table["probability"] = [f"{share:.6f}" for share in table["probability"]]
                writer.writerows(zip(*table.values(), strict=True))


@contextmanager
def _asked(
    target: str, token_file: Path | None, ca: Path | None, plugins: Sequence[str] = (), **how: Any
) -> Iterator[Target]:
    load_plugins(plugins)
    with (
        spinner("querying" if "://" in target else "loading torch and the learner"),
        opened(target, token_file=token_file, scope="read", ca=ca, **how) as learner,
    ):
        yield learner


@contextmanager
def _csv_writer(out: Path | None) -> Iterator[Any]:
    # To a file it appears only when it is complete.
    if out is None:
        yield csv.writer(sys.stdout, lineterminator="\n")
        return
    with written_aside(out) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield csv.writer(text, lineterminator="\n")
        text.detach()


def _columns(rows: Rows) -> dict[str, list[Any]]:
    """Return predictions as columns: classes, or labels and values in the format of node tables."""
    ids = [row["id"] for row in rows]
    if not rows or "label" in rows[0]:
        classes, shares = ([row[name] for row in rows] for name in ("label", "probability"))
        return {"id": ids, "label": classes, "probability": shares}
    if "target" in rows[0]:
        return {"id": ids, "target": [row["target"] for row in rows]}
    shares = [";".join(f"{share:.6f}" for share in row["probabilities"]) for row in rows]
    labels = [";".join(map(str, row["labels"])) or ";" for row in rows]
    return {"id": ids, "labels": labels, "probabilities": shares}


def _write_parquet(
    path: Path, blocks: Iterable[Rows], ids: Sequence[str | int], classes: Sequence[str | int]
) -> None:
    """Write a table; ids and classes are integers if all of them are, else text."""
    require("pyarrow", extra="tables", why=f"writing {path}")
    import pyarrow as pa
    import pyarrow.parquet as parquet

    text, number = pa.string(), pa.float64()
    kinds = {"target": number, "labels": text, "probabilities": text, "probability": number}
    for name, known in (("id", ids), ("label", classes)):
        whole = known and all(type(value) is int for value in known)
        kinds[name] = pa.int64() if whole else text

    def column(name: str, values: list[Any]) -> pa.Array:
        kind = kinds[name]
        return pa.array(map(str, values) if kind == text else values, kind)

    with written_aside(path) as file, ExitStack() as stack:
        writer = None
        for rows in blocks:
            found = {name: column(name, values) for name, values in _columns(rows).items()}
            if writer is None:
                schema = pa.schema([(name, kinds[name]) for name in found])
                writer = stack.enter_context(parquet.ParquetWriter(file, schema))
            writer.write_table(pa.table(found))


def explain_command(
    target: options.LearnerTarget,
    node: str = argument("The id of a node."),
    count: int = option(
        "How many nodes to list, largest contribution first.", "-n", "--count", default=10, min=1
    ),
    integer: bool = flag("--integer", "The id is an integer, even if a text id reads the same."),
    token_file: options.TokenFile = None,
    ca: options.CA = None,
    as_json: options.AsJson = False,
) -> None:
    """Show how much each nearby node adds to the class scores.

    The last line is the sum of the lines above it: the scores. Their softmax over all classes
    gives the probabilities.
    """
    with _asked(target, token_file, ca, new=False) as learner:
        found = learner.explain(node, integer=integer, limit=count)
    found = {name: found[name] for name in PARTS if name in found}
    if as_json:
        print_json(found)
        return
    known = "" if found.get("known") is None else f"; it is labelled {found['known']}"
    share = 100 * found["probabilities"][0]
    say(f"{found['id']}: {found['classes'][0]} with a probability of {share:.1f} %{known}")
    if found.get("voices") is None:
        say("with this learner's topology and head, scores are not a sum over nodes")
        return
    columns = [str(name) for name in found["classes"][:SHOWN]]
    coded = any(voice.get("by_label") for voice in found["voices"])
    by_label = [f"{columns[0]}, by label"] if coded else []
    print_table(("node", "label", *columns, *by_label), _rows(found, coded=coded))


def _rows(found: dict[str, Any], *, coded: bool) -> list[list[str]]:
    """Return the rows of the table.

    >>> _rows({"voices": [{"id": "b", "label": "x", "says": [0.5], "by_label": [0.25]}],
    ...        "others": [0.125], "rest": [0.0], "scores": [0.625]}, coded=True)
    [['b', 'x', '0.500', '0.250'], ['all other nodes', '', '0.125', ''],
     ['no single node', '', '0.000', ''], ['sum', '', '0.625', '']]
    """

    def numbers(values: Sequence[float], most: int = SHOWN) -> list[str]:
        return [f"{value + 0.0:.3f}" for value in values[:most]]  # without a sign before zero

    rows = []
    for voice in found["voices"]:
        label = "" if voice.get("label") is None else str(voice["label"])
        by_label = numbers(voice.get("by_label") or [0.0], 1) if coded else []
        rows.append([str(voice["id"]), label, *numbers(voice["says"]), *by_label])
    sums = (("all other nodes", "others"), ("no single node", "rest"), ("sum", "scores"))
    return rows + [[name, "", *numbers(found[part]), *[""] * coded] for name, part in sums]


def suggest_command(
    target: options.LearnerTarget,
    count: int = option("Maximum number of nodes to list.", "-n", "--count", default=20, min=1),
    out: Path | None = option("The .csv to write (default: a table on stdout)."),
    token_file: options.TokenFile = None,
    ca: options.CA = None,
    plugins: options.Plugins = [],
    as_json: options.AsJson = False,
) -> None:
    """List the unlabelled nodes that are most worth labelling, and why.

    gain: the uncertainty that its label is expected to affect; reach: the nodes whose embedding
    depends on it; uncertainty: that of its own prediction; then the two likeliest classes with
    their probabilities.
    """
    if out is not None and out.suffix != ".csv":
        raise ConfigurationError(f"--out must end in .csv, not {out.name!r}")
    with _asked(target, token_file, ca, plugins) as learner:
        found = learner.suggest(count)
    if out is not None:
        with _csv_writer(out) as writer:
            writer.writerow(COLUMNS)
            writer.writerows(_suggested(row, digits=6, missing="") for row in found)
    if as_json:
        print_json({"suggestions": found})
    elif out is None and found:
        print_table(COLUMNS, [_suggested(row, digits=2, missing="-") for row in found])
    elif out is None:
        say("every known node has a label")


def _suggested(row: dict[str, Any], *, digits: int, missing: str) -> list[str]:
    """Return a suggestion as a row; classes have their probabilities in a table for people."""
    doubt, best = row.get("uncertainty"), list(map(str, row["classes"]))
    if missing:
        shares = zip(best, row["probabilities"], strict=True)
        best = [f"{name} ({100 * share:.0f} %)" for name, share in shares]
    told = missing if doubt is None else f"{doubt:.{digits}f}"
    cells = [str(row["id"]), f"{row['gain']:.{digits}f}", str(row["reach"]), told]
    return [*cells, *best, *[missing] * (2 - len(best))]
