"""``evergraph list``: what there is to choose from."""

from __future__ import annotations

import sys
from enum import Enum
from importlib import import_module, resources
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli.options import PLUGINS
from evergraph.cli.output import print_json, print_table
from evergraph.core.checks import check_choice
from evergraph.core.plugins import installed_plugins, load_plugins
from evergraph.core.resolver import declared_parts

if TYPE_CHECKING:
    from evergraph.core.resolver import Resolver

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Kind(str, Enum):
    """What can be listed."""

    datasets = "datasets"
    methods = "methods"
    topologies = "topologies"
    samplers = "samplers"
    backbones = "backbones"
    presets = "presets"
    protocols = "protocols"
    benches = "benches"


# What the resolver is called, the package that has it, and another that registers with it.
_RESOLVERS: dict[Kind, tuple[str, ...]] = {
    Kind.datasets: ("datasets", "datasets"),
    Kind.methods: ("methods", "methods"),
    Kind.topologies: ("topologies", "topology"),
    Kind.samplers: ("samplers", "memory.samplers"),
    Kind.backbones: ("backbones", "nn", "closed_form"),
}
# What the catalogue need not say of a dataset.
_UNKNOWN: dict[str, Any] = {
    "kept_edges": None,
    "homophily": None,
    "terms": None,
    "paper": None,
    "labelled": None,
    "urls": [],
    "download": 0,
    "room": 0,
    "sha256": {},
}


def list_command(
    kind: str | None = typer.Argument(
        None, help=f"What to list: {', '.join(Kind)} (default: what can be listed, and how many)."
    ),
    plugins: list[str] = PLUGINS,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """List what can be chosen by name, with one line about each."""
    if kind is not None:
        check_choice("kind", kind, [known.value for known in Kind])
    load_plugins(plugins)
    if kind is None:
        _list_kinds(as_json)
    elif kind == Kind.datasets:
        _list_datasets(as_json)
    elif as_json:
        print_json({kind: _summaries(Kind(kind))})
    else:
        print_table(("name", "what it is"), list(_summaries(Kind(kind)).items()))


def _list_kinds(as_json: bool) -> None:
    counts = {kind.value: len(_summaries(kind)) for kind in Kind}
    if as_json:
        print_json(counts)
        return
    rows = [(name, str(number), f"evergraph list {name}") for name, number in counts.items()]
    print_table(("what", "how many", "their names"), rows)


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
    facts = _catalogue()
    return {name: facts.get(name, {"title": line}) for name, line in _parts(Kind.datasets).items()}


def _catalogue() -> dict[str, dict[str, Any]]:
    """Return the catalogue of ``evergraph.datasets``, whose own reader comes with torch."""
    text = resources.files("evergraph").joinpath("datasets/catalogue.toml").read_text("utf-8")
    return {name: _UNKNOWN | facts for name, facts in tomllib.loads(text).items()}


def _summaries(kind: Kind) -> dict[str, str]:
    if kind in _RESOLVERS:
        return _parts(kind)
    from evergraph.experiments.presets import benches, presets, summary
    from evergraph.experiments.protocols import protocols

    files = {Kind.presets: presets, Kind.protocols: protocols, Kind.benches: benches}[kind]()
    return {name: summary(path) for name, path in files.items()}


def _parts(kind: Kind) -> dict[str, str]:
    """Return what is registered, from the source where nobody can have registered anything else.

    Whoever registers parts of his own has imported the package: a program, or a plugin.
    """
    attribute, *packages = _RESOLVERS[kind]
    declared: dict[str, str] = {}
    for package in packages:
        declared |= declared_parts(package.replace(".", "/"), attribute)
    names = [f"evergraph.{package}" for package in packages]
    if names[0] in sys.modules or not declared or installed_plugins():
        modules = [import_module(name) for name in names]
        registered: Resolver[Any] = getattr(modules[0], attribute)
        return registered.summaries()
    return dict(sorted(declared.items()))
