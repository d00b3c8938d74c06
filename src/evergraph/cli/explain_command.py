"""``evergraph explain``: why a node is classified as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from evergraph.cli.learner_target import opened
from evergraph.cli.options import CA
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import spinner

SHOWN = 3  # classes that are compared in a table
PARTS = ("id", "known", "classes", "probabilities", "scores", "voices", "others", "rest")


def explain_command(
    target: str = typer.Argument(..., help="A learner's folder, or the URL of a service."),
    node: str = typer.Argument(..., help="The id of a node."),
    count: int = typer.Option(
        10, "-n", "--count", help="How many nodes to list, the loudest first.", min=1
    ),
    integer: bool = typer.Option(
        False, "--integer", help="The id is a whole number, where a text reads the same."
    ),
    token_file: Path | None = typer.Option(
        None, help="With a token that may read (default: none)."
    ),
    ca: Path | None = CA,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Tell how much each node nearby adds to the scores of the likeliest classes.

    The last line is the sum of all lines above it: the scores, whose softmax over all classes are
    the probabilities.
    """
    with (
        spinner("asking" if "://" in target else "loading torch and the learner"),
        opened(target, token_file=token_file, scope="read", ca=ca, new=False) as learner,
    ):
        found = learner.explain(node, integer=integer, limit=count)
    found = {name: found[name] for name in PARTS if name in found}
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    known = "" if found.get("known") is None else f"; it is labelled {found['known']}"
    share = 100 * found["probabilities"][0]
    say(f"{found['id']}: {found['classes'][0]} with a probability of {share:.1f} %{known}")
    if found.get("voices") is None:
        say("its scores are not a sum over nodes with this learner's topology and head")
        return
    columns = [str(name) for name in found["classes"][:SHOWN]]
    coded = any(voice.get("by_label") for voice in found["voices"])
    by_label = [f"{columns[0]}, by label"] if coded else []
    print_table(("node", "label", *columns, *by_label), _rows(found, coded=coded))


def _rows(found: dict[str, Any], *, coded: bool) -> list[list[str]]:
    """Return the lines of the table.

    >>> _rows({"voices": [{"id": "b", "label": "x", "says": [0.5], "by_label": [0.25]}],
    ...        "others": [0.125], "rest": [0.0], "scores": [0.625]}, coded=True)
    [['b', 'x', '0.500', '0.250'], ['all other nodes', '', '0.125', ''],
     ['no single node', '', '0.000', ''], ['sum', '', '0.625', '']]
    """
    rows = []
    for voice in found["voices"]:
        label = "" if voice.get("label") is None else str(voice["label"])
        by_label = _numbers(voice.get("by_label") or [0.0], 1) if coded else []
        rows.append([str(voice["id"]), label, *_numbers(voice["says"]), *by_label])
    for name, part in (("all other nodes", "others"), ("no single node", "rest")):
        rows.append([name, "", *_numbers(found[part]), *[""] * coded])
    return [*rows, ["sum", "", *_numbers(found["scores"]), *[""] * coded]]


def _numbers(values: Sequence[float], most: int = SHOWN) -> list[str]:
    return [f"{value + 0.0:.3f}" for value in values[:most]]
