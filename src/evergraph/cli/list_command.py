"""``evergraph list``: what there is to choose from."""

from __future__ import annotations

from enum import Enum
from typing import Any

import typer

from evergraph.cli.output import print_json, print_table


class Kind(str, Enum):
    """What can be listed."""

    datasets = "datasets"
    methods = "methods"
    topologies = "topologies"
    samplers = "samplers"
    backbones = "backbones"
    presets = "presets"
    benches = "benches"


def list_command(
    kind: Kind = typer.Argument(..., help="What to list."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """List what can be chosen by name, with one line about each."""
    if kind is Kind.datasets:
        _list_datasets(as_json)
    elif as_json:
        print_json({kind.value: _summaries(kind)})
    else:
        print_table(("name", "what it is"), list(_summaries(kind).items()))


def _list_datasets(as_json: bool) -> None:
    facts = _datasets()
    if as_json:
        print_json({"datasets": facts})
        return
    columns = ("nodes", "edges", "features", "classes", "tasks", "title")
    rows = [
        [name, *(_cell(known.get(column)) for column in columns)] for name, known in facts.items()
    ]
    print_table(("name", *columns[:-1], "what it is"), rows)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _datasets() -> dict[str, dict[str, Any]]:
    from dataclasses import asdict

    from evergraph.datasets import datasets
    from evergraph.datasets.catalogue import catalogue

    facts = catalogue()
    return {
        name: asdict(facts[name]) if name in facts else {"title": summary}
        for name, summary in datasets.summaries().items()
    }


def _summaries(kind: Kind) -> dict[str, str]:
    from evergraph.experiments.benches import benches
    from evergraph.experiments.presets import presets, summary
    from evergraph.memory import samplers
    from evergraph.methods import methods
    from evergraph.nn import backbones
    from evergraph.topology import topologies

    files = {Kind.presets: presets, Kind.benches: benches}
    if kind in files:
        return {name: summary(path) for name, path in files[kind]().items()}
    resolvers = {
        Kind.methods: methods,
        Kind.topologies: topologies,
        Kind.samplers: samplers,
        Kind.backbones: backbones,
    }
    return resolvers[kind].summaries()  # type: ignore[attr-defined, no-any-return]
