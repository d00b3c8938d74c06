"""``evergraph predict``, ``explain`` and ``suggest``: queries to a learner."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.cli import options
from evergraph.cli.inputs import TableOptions, is_pipe, read_ids, with_shared_options
from evergraph.cli.learner_target import Access, Target
from evergraph.cli.options import argument, flag, option
from evergraph.cli.output import print_json, print_table, say
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.packages import require
from evergraph.core.safe_files import written_aside
from evergraph.server.client import is_url

if TYPE_CHECKING:
    from evergraph.online.delta import Delta
    from evergraph.tables.sources import Source

IDS_PER_QUESTION = 1_000  # ids in one question
MOST_SHARES = 500_000  # probabilities in one answer
SHARE = "probability"
SUFFIXES = (".csv", ".parquet")
Rows = Sequence[dict[str, Any]]  # predictions as the service returns them
MAX_CLASSES_SHOWN = 3  # classes shown in a table
SCORES = ("id", "known", "classes", "probabilities", "scores")
PARTS = (*SCORES, "voices", "others", "rest", "columns", "values")
COLUMNS = ("id", "gain", "reach", "uncertainty", "first", "second")


@with_shared_options
def predict_command(
    target: options.LearnerTarget,
    ids: str | None = argument(
        "File of ids, one a line or in a column 'id'; - is stdin (default: none, for --all).",
        default=None,
    ),
    everything: bool = flag("--all", "Predict every node of the learner."),
    dry: bool = flag("--dry", "Predict the nodes of --nodes as if they were added; add nothing."),
    nodes: str | None = option("With --dry: a .csv or .parquet of nodes (default: none)."),
    edges: str | None = option("With --dry: a .csv or .parquet of their edges (default: none)."),
    every_class: bool = flag("--probabilities", "Write the probability of every class or label."),
    out: Path | None = option("The .csv or .parquet to write (default: CSV on stdout)."),
    integers: bool = flag("--integers", "Ids are integers, not text."),
    written: TableOptions = TableOptions(),
    access: Access = Access(),
    plugins: options.Plugins = [],
) -> None:
    """Write each node's id, predicted label, its probability, and the label that is known of it.

    Multi-label learners write labels with their probabilities; regression writes the target.
    --probabilities adds a column for each class.
    """
    if out is not None and out.suffix not in SUFFIXES:
        raise ConfigurationError(f"--out must end in {' or '.join(SUFFIXES)}, not {out.name!r}")
    if [ids is not None, everything, dry].count(True) != 1:
        hint = "; new nodes, with --nodes, need --dry" if nodes is not None and not dry else ""
        raise ConfigurationError(f"predict needs one of a file of ids, --all and --dry{hint}")
    if dry != (nodes is not None) or (edges is not None and not dry):
        raise ConfigurationError(
            "--dry, --nodes and --edges belong together: --dry --nodes new.csv, perhaps with "
            "--edges; evergraph ingest adds tables"
        )
    if not dry and written != TableOptions():
        raise ConfigurationError("options of tables, such as --id, need --dry and --nodes")
    listed_ids = None
    if ids is not None:
        if not is_pipe(ids) and not Path(ids).exists():
            raise DataError(
                f"{ids}: no such file of ids; a single node: echo {ids} | evergraph predict "
                f"{target} -, or evergraph explain {target} {ids}"
            )
        listed_ids = read_ids(ids, integers=integers)
    with access.open(target, plugins=plugins) as learner:
        names = _names(learner) if every_class else ()
        node_ids: Sequence[str | int]
        blocks: Iterable[Rows]
        if nodes is not None:
            delta = _delta_of_new_nodes(learner, written.tables(nodes, edges), integers=integers)
            node_ids, blocks = delta.nodes, [learner.ask(delta, every_class=every_class)]
        else:
            node_ids = learner.every_id() if listed_ids is None else listed_ids
            step = max(min(IDS_PER_QUESTION, MOST_SHARES // max(len(names), 1)), 1)
            parts = {"every_class": every_class, "known": True}
            starts = range(0, len(node_ids), step)
            blocks = (learner.predict(node_ids[at : at + step], **parts) for at in starts)
            if listed_ids is not None:
                blocks = list(blocks)  # nothing is written if any id is unknown
            if not node_ids:
                blocks = [[]]  # the header alone
        if out is not None and out.suffix == ".parquet":
            _write_parquet(out, blocks, node_ids, learner.classes(), names)
            return
        with _csv_writer(out) as writer:
            for number, rows in enumerate(blocks):
                table = _columns(rows, names)
                if not number:
                    writer.writerow(table)
                for name in table:
                    if name.startswith(SHARE):
                        table[name] = [f"{share:.6f}" for share in table[name]]
                writer.writerows(zip(*table.values(), strict=True))


def _names(learner: Target) -> Sequence[str | int]:
    if not (names := learner.classes()):
        raise ConfigurationError("--probabilities needs a learner that has met classes or labels")
    return names


def _delta_of_new_nodes(
    learner: Target, tables: tuple[Source | None, Source | None], *, integers: bool
) -> Delta:
    """Return new nodes with their edges as one delta, without labels."""
    from evergraph.online.codecs.tables import read_deltas

    deltas = read_deltas(*tables, columns=learner.columns(), integers=integers)
    if not learner.status()["relations"]:
        deltas = deltas.without_relations()
    learner.check(deltas)
    delta = deltas.whole
    others = (delta.updated, delta.late, delta.removed_edges, delta.forgotten)
    if deltas.known or not len(delta.nodes) or any(map(len, others)):
        raise DataError(f"{tables[0]}: --dry takes new nodes with features, and new edges only")
    return replace(delta, labels=())


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


def _columns(rows: Rows, names: Sequence[str | int] = ()) -> dict[str, list[Any]]:
    """Return predictions as columns, in the format of a table of nodes.

    names: of the classes whose probabilities are wanted

    >>> _columns([{"id": "a", "label": "x", "probability": 0.5, "known": None}])
    {'id': ['a'], 'label': ['x'], 'probability': [0.5], 'known': [None]}
    """
    table: dict[str, list[Any]] = {"id": [row["id"] for row in rows]}
    targets = [name for name in ("label", "labels", "target") if rows and name in rows[0]]
    for name in targets or ["label"]:
        table[name] = [_cell(row[name]) for row in rows]
    if "label" in table:
        table[SHARE] = [row[SHARE] for row in rows]
    elif "labels" in table and not names:
        shares = ([f"{share:.6f}" for share in row["probabilities"]] for row in rows)
        table["probabilities"] = [*map(";".join, shares)]
    for column, label in enumerate(names):
        table[f"{SHARE}_{label}"] = [row["probabilities"][column] for row in rows]
    if rows and "known" in rows[0]:
        table["known"] = [_cell(row["known"]) for row in rows]
    return table


def _cell(value: Any) -> Any:
    """Return labels as one text, as a table of nodes has them."""
    return ";".join(map(str, value)) or ";" if isinstance(value, list | tuple) else value


def _write_parquet(
    path: Path,
    blocks: Iterable[Rows],
    ids: Sequence[str | int],
    classes: Sequence[str | int],
    names: Sequence[str | int],
) -> None:
    """Write a table; ids and classes are integers if all of them are, else text."""
    require("pyarrow", extra="tables", why=f"writing {path}")
    import pyarrow as pa
    import pyarrow.parquet as parquet

    def type_of(values: Sequence[str | int]) -> pa.DataType:
        all_integers = len(values) and all(type(value) is int for value in values)
        return pa.int64() if all_integers else pa.string()

    def array(name: str, values: list[Any]) -> pa.Array:
        types = {"id": type_of(ids), "label": type_of(classes), "target": pa.float64()}
        types |= {"labels": pa.string(), "probabilities": pa.string()}
        if name.startswith(SHARE) and name not in types:
            return pa.array(values, pa.float64())
        target = next(each for each in ("label", "labels", "target") if each in table)
        kind = types[target if name == "known" else name]
        if kind == pa.string():
            values = [None if value is None else str(value) for value in values]
        return pa.array(values, kind)

    with written_aside(path) as file, ExitStack() as stack:
        writer = None
        for rows in blocks:
            table = _columns(rows, names)
            arrow_table = pa.table({name: array(name, values) for name, values in table.items()})
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(file, arrow_table.schema))
            writer.write_table(arrow_table)


@with_shared_options
def explain_command(
    target: options.LearnerTarget,
    node: str = argument("The id of a node."),
    nodes: str | None = option(
        "A .csv or .parquet of nodes, whose categories and words are then named (default: none)."
    ),
    count: int = option(
        "How many nodes to list, largest contribution first.", "-n", "--count", default=10, min=1
    ),
    integer: bool = flag("--integer", "The id is an integer, even if a text id reads the same."),
    written: TableOptions = TableOptions(),
    access: Access = Access(),
    as_json: options.AsJson = False,
) -> None:
    """Show how much each nearby node, and each column of the table, adds to the scores.

    The last line for nodes is the sum of the lines above it: the scores. Their softmax over all
    classes gives the probabilities. Columns count the node's own values and those around it. A
    learner keeps no names of categories and words: --nodes names those of its table.
    """
    options_of_table = {}
    if nodes is not None:
        if is_url(target):
            raise ConfigurationError(f"--nodes of explain needs a learner's folder, not {target}")
        options_of_table["table"] = written.tables(nodes, None)[0]
    with access.open(target) as learner:
        explanation = learner.explain(node, integer=integer, limit=count, **options_of_table)
    explanation = {name: explanation[name] for name in PARTS if name in explanation}
    if as_json:
        print_json(explanation)
        return
    relation = "it is labelled" if explanation["classes"] else "its known value is"
    known_label = "" if explanation.get("known") is None else f"; {relation} {explanation['known']}"
    if explanation["classes"]:
        share = 100 * explanation["probabilities"][0]
        label = explanation["classes"][0]
        say(f"{explanation['id']}: {label} with a probability of {share:.1f} %{known_label}")
    else:
        say(f"{explanation['id']}: {explanation['scores'][0]:.4g}{known_label}")
    if explanation.get("voices") is None:
        say("with this learner's topology and head, scores are not a sum over nodes")
        return
    columns = [str(name) for name in explanation["classes"][:MAX_CLASSES_SHOWN]] or ["number"]
    has_codes = any(voice.get("by_label") for voice in explanation["voices"])
    by_label = [f"{columns[0]}, for its label"] if has_codes else []
    print_table(("node", "label", *columns, *by_label), _rows(explanation, coded=has_codes))
    if explanation.get("columns"):
        rows = [[part["column"], *_numbers(part["says"])] for part in explanation["columns"]]
        print_table(("column", *columns), rows)
    if explanation.get("values"):
        rows = [
            [part["column"], part["value"], *_numbers(part["says"])]
            for part in explanation["values"]
        ]
        print_table(("column", "value", *columns), rows)


def _rows(explanation: dict[str, Any], *, coded: bool) -> list[list[str]]:
    """Return the rows of the table.

    >>> _rows({"voices": [{"id": "b", "label": "x", "says": [0.5], "by_label": [0.25]}],
    ...        "others": [0.125], "rest": [0.0], "scores": [0.625]}, coded=True)
    [['b', 'x', '0.500', '0.250'], ['all other nodes', '', '0.125', ''],
     ['every node alike', '', '0.000', ''], ['sum', '', '0.625', '']]
    """
    rows = []
    for voice in explanation["voices"]:
        label = "" if voice.get("label") is None else str(voice["label"])
        by_label = _numbers(voice.get("by_label") or [0.0], 1) if coded else []
        rows.append([str(voice["id"]), label, *_numbers(voice["says"]), *by_label])
    sums = (("all other nodes", "others"), ("every node alike", "rest"), ("sum", "scores"))
    return rows + [[name, "", *_numbers(explanation[part]), *[""] * coded] for name, part in sums]


def _numbers(values: Sequence[float], most: int = MAX_CLASSES_SHOWN) -> list[str]:
    return [f"{round(value, 3) + 0.0:.3f}" for value in values[:most]]  # no sign before zero


@with_shared_options
def suggest_command(
    target: options.LearnerTarget,
    count: int = option("Maximum number of nodes to list.", "-n", "--count", default=20, min=1),
    out: Path | None = option("The .csv to write (default: a table on stdout)."),
    access: Access = Access(),
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
    with access.open(target, plugins=plugins) as learner:
        suggestions = learner.suggest(count)
    if out is not None:
        with _csv_writer(out) as writer:
            writer.writerow(COLUMNS)
            writer.writerows(_suggestion_row(row, digits=6, missing="") for row in suggestions)
    if as_json:
        print_json({"suggestions": suggestions})
    elif out is None and suggestions:
        print_table(COLUMNS, [_suggestion_row(row, digits=2, missing="-") for row in suggestions])
    elif out is None:
        say("every known node has a label")


def _suggestion_row(row: dict[str, Any], *, digits: int, missing: str) -> list[str]:
    """Return a suggestion as a row; classes have their probabilities in a table for people."""
    uncertainty_value, classes = row.get("uncertainty"), list(map(str, row["classes"]))
    if missing:
        shares = zip(classes, row["probabilities"], strict=True)
        classes = [f"{name} ({100 * share:.0f} %)" for name, share in shares]
    uncertainty = missing if uncertainty_value is None else f"{uncertainty_value:.{digits}f}"
    cells = [str(row["id"]), f"{row['gain']:.{digits}f}", str(row["reach"]), uncertainty]
    return [*cells, *classes, *[missing] * (2 - len(classes))]
