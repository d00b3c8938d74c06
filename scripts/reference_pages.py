"""Two generated pages of the reference: every part by name, and every public name and command."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from typer.main import get_command

import evergraph as eg
from evergraph.cli.app import app
from evergraph.core.component import Resolver
from evergraph.core.errors import ConfigurationError
from evergraph.datasets import datasets
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.online import LearnerFolder, OnlineLearner
from evergraph.server.app import create_app
from evergraph.topology import topologies

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
KINDS: dict[str, tuple[Resolver[Any], str]] = {
    "Methods": (methods, "`--method NAME`, `[method]` in a config."),
    "Samplers": (
        samplers,
        "Which nodes a memory keeps: `--sampler NAME`, `[memory]` in a config. A mergeable sampler "
        "also works for a class that arrives in several parts.",
    ),
    "Topologies": (
        topologies,
        "The parameter-free aggregation, f_topo of the paper: `--topology NAME`, `--hops L`, "
        "`[topology]` in a config.",
    ),
    "Backbones": (backbones, "The model: `--backbone NAME`, `[backbone]` in a config."),
    "Datasets": (
        datasets,
        "`--dataset NAME`, `[dataset]` in a config, `evergraph.load(NAME)`. Graphs that are "
        "neither bundled nor generated are downloaded on first use.",
    ),
}
# What every method, or every dataset, takes besides its own parameters.
SHARED = {"backbone", "trainer", "generator", "cache", "resources"}
PARTS_HEAD = """# Parts by name

Everything that can be chosen by name, with its parameters and their defaults. Set a parameter with
`--set method.margin=0.1` (or `sampler`, `topology`, `backbone`, `dataset`), under the same name in
a configuration file, or as a keyword argument of the class. `evergraph list methods` prints the
names of the installed package, parts of plugins included.
"""
NAMES_HEAD = """# Public names, commands and routes

What a program, a shell or an HTTP client may call. The names in `evergraph` and its namespaces are
the public interface.
"""


def parts_page() -> str:
    """Return a table of each kind of part: name, what it is, parameters and defaults."""
    sections = [PARTS_HEAD]
    for title, (resolver, about) in KINDS.items():
        rows = "\n".join(_part_row(resolver, name) for name in resolver.names())
        head = "| name | what it is | parameters and defaults |\n|---|---|---|"
        paths = map(_path, map(resolver.resolve, resolver.names()))
        entries = "".join(f"\n::: {path}\n" for path in paths if path not in _entries())
        sections.append(f"## {title}\n\n{about}\n\n{head}\n{rows}\n{entries}")
    sections.append(f"## Methods and backbones\n\n{_pairs()}\n")
    return "\n".join(sections)


def names_page() -> str:
    """Return public names with signatures, commands with their help, and routes."""
    plain = [name for name in eg.__all__ if not isinstance(getattr(eg, name), ModuleType)]
    spaces = [name for name in eg.__all__ if name not in plain]
    sections = [NAMES_HEAD, _names("evergraph", eg, plain)]
    for name in spaces:
        space = getattr(eg, name)
        public = getattr(space, "__all__", None) or [n for n in vars(space) if _is_own(space, n)]
        sections.append(_names(f"evergraph.{name}", space, public))
    sections.append("## Commands\n\n" + "\n".join(_commands()))
    sections.append("## HTTP routes\n\n" + _routes())
    return "\n".join(sections)


def _part_row(resolver: Resolver[Any], name: str) -> str:
    cls = resolver.resolve(name)
    notes = [f"also `{alias}`" for alias in vars(cls).get("aliases", ())]
    about = _first_line(cls)
    if getattr(cls, "mergeable", False) and "mergeable" not in about:
        notes.append("mergeable")
    about += f" ({', '.join(notes)})" if notes else ""
    parameters = ", ".join(
        f"`{p.name}` {_default(p)}"
        for p in inspect.signature(cls).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name not in SHARED
    )
    page = _entries().get(_path(cls), "parts.md")  # below its table if no other page has it
    return f"| [`{name}`]({page}#{_path(cls)}) | {_cell(about)} | {_cell(parameters) or 'none'} |"


def _default(parameter: inspect.Parameter) -> str:
    """Return a parameter's default as a configuration has it.

    >>> def f(*, rate=0.1, name="all", deep=True, hops=None, width=()): ...
    >>> [_default(p) for p in inspect.signature(f).parameters.values()]
    ['0.1', 'all', 'true', 'none', 'none']
    """
    value = parameter.default
    if value is parameter.empty:
        return "(required)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return "none" if value is None else str(value)


def _pairs() -> str:
    """Say which methods run on which backbones, as the methods themselves accept them."""
    by_name = {name: backbones.make(name) for name in backbones.names()}
    rows = []
    for name in methods.names():
        runs = [other for other, backbone in by_name.items() if _accepts(name, backbone)]
        missing = [other for other in by_name if other not in runs]
        text = ", ".join(f"`{other}`" for other in runs)
        if not missing:
            text = "all"
        elif len(missing) < len(runs):
            text = "all but " + ", ".join(f"`{other}`" for other in missing)
        rows.append(f"| `{name}` | `{methods.resolve(name).default_backbone}` | {text} |")
    return "| method | default backbone | runs on |\n|---|---|---|\n" + "\n".join(rows)


def _accepts(name: str, backbone: Any) -> bool:
    # Landmarks are refused where the graph is not kept, so `auto` is tried both ways.
    options: list[dict[str, Any]] = [{}]
    if "refresh" in methods.parameters(name):
        options.append({"refresh": "embeddings"})
    for parameters in options:
        with suppress(ConfigurationError):
            methods.make(name, backbone=backbone, generator=eg.seeded(0), **parameters)
            return True
    return False


def _names(title: str, home: Any, names: list[str]) -> str:
    lines = [f"## `{title}`\n"]
    for name in sorted(names, key=str.lower):
        value = getattr(home, name)
        if isinstance(value, ModuleType):
            continue
        lines.append(f"- {_linked(value, name)}: {_first_line(value)}")
        if callable(value) and (signature := _signature(value)):
            lines.append(f"  <br>`{name}{signature}`")
    return "\n".join(lines) + "\n"


def _signature(value: Any) -> str:
    """Return what a call takes, without types, which the reference has.

    >>> def f(a, *, b=0.5, **more): ...
    >>> _signature(f)
    '(a, *, b=0.5, **more)'
    """
    if isinstance(value, type) and issubclass(value, BaseException):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [
        p.replace(annotation=p.empty, default=_short(p.default))
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


class _Unspelt:
    """A default that is a value of its own, too long to be written out."""

    def __repr__(self) -> str:
        return "..."


def _short(default: Any) -> Any:
    simple = default is inspect.Parameter.empty or isinstance(
        default, (str, int, float, type(None), tuple, list, dict)
    )
    return default if simple else _Unspelt()


def _commands() -> Iterator[str]:
    group: Any = get_command(app)
    context = group.make_context("evergraph", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        yield f"### `evergraph {name}`\n\n```text\n{command.get_help(inner)}\n```\n"


def _routes() -> str:
    with tempfile.TemporaryDirectory() as folder:
        learner_folder = LearnerFolder.open(Path(folder) / "learner", make=OnlineLearner)
        paths = create_app(learner_folder).openapi()["paths"]
        learner_folder.close()
    rows = [
        f"| `{method.upper()} {path}` | {_cell(route['description'].splitlines()[0])} | "
        f"{', '.join('`' + parameter['name'] + '`' for parameter in route.get('parameters', ())) or '-'} |"
        for path, methods_of_path in paths.items()
        for method, route in methods_of_path.items()
    ]
    return "| route | what it does | parameters |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _linked(value: Any, name: str) -> str:
    """Return a name as code, linked to its entry in the reference where it has one."""
    page = _entries().get(_path(value))
    return f"[`{name}`]({page}#{_path(value)})" if page else f"`{name}`"


def _path(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


@cache
def _entries() -> dict[str, str]:
    """Return each entry of the hand-written reference pages with its page."""
    return {
        line.removeprefix("::: ").strip(): page.name
        for page in REFERENCE.glob("*.md")
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("::: ")
    }


def _is_own(space: ModuleType, name: str) -> bool:
    return (
        not name.startswith("_") and getattr(vars(space)[name], "__module__", "") == space.__name__
    )


def _first_line(value: Any) -> str:
    """Return the first sentence of a docstring.

    >>> _first_line(_first_line)
    'Return the first sentence of a docstring.'
    """
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", text)[0].replace("``", "`")


def _cell(text: str) -> str:
    """Return text for a cell of a table: bars end a cell everywhere but in code.

    >>> print(_cell("a | b, `0|2`"))
    a \\| b, `0|2`
    """
    parts = text.replace("``", "`").split("`")
    return "`".join(p if i % 2 else p.replace("|", "\\|") for i, p in enumerate(parts))
