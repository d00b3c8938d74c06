"""Options that several commands take, and from what was typed to a configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.core.engine import check_engine
from evergraph.core.errors import ConfigurationError
from evergraph.core.sizes import parse_size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Whatever needs pydantic is imported where it is used: ``--help`` does without.
if TYPE_CHECKING:
    from evergraph.core.resources import Resources
    from evergraph.experiments.bench.config import BenchConfig
    from evergraph.experiments.config import RunConfig

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Address = Annotated[
    str | None, typer.Option(help="A Ray cluster to join: auto or host:port (default: start one).")
]
CA = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="PEM file of the authority that signed the certificate of an https service "
        "(default: the system's authorities).",
    ),
]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda (default: auto).")]
Directed = Annotated[bool, typer.Option("--directed", help="Keep edges in one direction.")]
Engine = Annotated[str, typer.Option(help="Where to compute: local (here) or ray.")]
LearnerTarget = Annotated[str, typer.Argument(help="A learner's folder, or the URL of a service.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(help="The most memory to use, such as 4GB (default: most of what is free)."),
]
LearnerMemory = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", help="The most memory to hold, such as 2GB (default: all that it takes)."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing graph.")]
Plugins = Annotated[
    list[str],
    typer.Option(
        "--plugin",
        metavar="FILE.py|MODULE",
        help="What defines parts of your own; may be repeated (default: none).",
    ),
]
Preset = Annotated[
    str | None, typer.Option(help="A preset's name, or a TOML file (default: none).")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="Measure as a paper does: paper, cglb, puma, delome, tpp, llm4gcl or ocgl (default: "
        "none; evergraph list protocols).",
    ),
]
ResultsFolder = Annotated[
    Path | None, typer.Option("--out", help="Results folder (default: inside runs/).")
]
Scratch = Annotated[
    Path | None,
    typer.Option(help="Folder for what does not fit (default: the system's temporary one)."),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        help="How many repeats, such as 3, or which seeds, such as 7,8 (default: 1, or the file's)."
    ),
]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Anything else, such as stream.edges=all."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="File with a token of the service that may do this (default: none)."),
]
WorkerThreads = Annotated[
    int | None,
    typer.Option(
        min=1, help="Threads of each Ray worker (default: one, or its share of this machine)."
    ),
]


def overrides(
    preset: str | None, given: Mapping[str, Any], settings: Mapping[str, Any]
) -> RunConfig:
    """Lay options over a preset over a protocol over the defaults."""
    from evergraph.experiments.config import RunConfig
    from evergraph.experiments.presets import read_preset
    from evergraph.experiments.protocols import layered

    def laid_over(values: Mapping[str, Any]) -> RunConfig:
        own = _without_gaps(given)
        return RunConfig.of(layered(RunConfig().to_dict(), values, own, settings))

    if preset is None:
        return laid_over({})
    method = laid_over(read_preset(preset)).method.name
    return laid_over(read_preset(preset, method))


AUTO = "auto"


def options_of_auto(keep: str | None, views: str | None) -> dict[str, Any]:
    """Return what was asked of ``auto``, as its part of a configuration.

    >>> options_of_auto("50MB", "2,0|2+y")["backbone"]
    {'name': 'view-features', 'views': ['2', '0|2+y']}
    """
    asked: dict[str, Any] = {}
    if keep is not None:
        parse_size(keep)
        asked["method"] = {"name": AUTO, "keep": keep}
    if views is not None:
        asked["backbone"] = {"name": "view-features", "views": views.split(",")}
    return asked


def several(
    methods: str | None,
    preset: str | None,
    given: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    auto: Mapping[str, Any] | None = None,
) -> list[RunConfig]:
    """Return a configuration for each of the methods named between commas, the rest laid over.

    auto: laid over that of ``auto``, which must be among them if there is any.
    """
    from evergraph.experiments.config import RunConfig, merged

    names = [None] if methods is None else methods.split(",")
    configs = [overrides(preset, {**given, "method": name}, settings) for name in names]
    if auto:
        if AUTO not in [config.method.name for config in configs]:
            raise ConfigurationError("--keep and --views are for method auto, which is not run")
        configs = [
            RunConfig.of(merged(config.to_dict(), auto)) if config.method.name == AUTO else config
            for config in configs
        ]
    found = [config.method.name for config in configs]
    for name in found:
        if found.count(name) > 1:
            raise ConfigurationError(f"method must name each method once, not {name!r} twice")
    return configs


PARTS = ("topology", "memory", "training")  # which some methods have no use for


def say_unused(configs: Sequence[RunConfig], given: Mapping[str, Any]) -> None:
    """Say which of the options given mean nothing to a method that is going to run."""
    asked = {part: sorted(_without_gaps(given).get(part, {})) for part in PARTS}
    if not any(asked.values()):
        return
    from evergraph.core.notices import say_ignored
    from evergraph.experiments.build import parts_used

    for config in configs:
        used = parts_used(config)
        idle = [name for part, names in asked.items() if part not in used for name in names]
        flags = [f"--{'topology' if n == 'name' else n.replace('_', '-')}" for n in idle]
        say_ignored(config.method.name, "option", flags, "the method has no use for it")


def bench_of(
    name: str,
    *,
    datasets: str | None = None,
    seeds: list[int] | None = None,
    plugins: Sequence[str] = (),
) -> BenchConfig:
    """Read a benchmark, with other datasets (between commas) or seeds if some are given.

    plugins: beside those of the file.
    """
    from evergraph.experiments.bench.config import BenchConfig
    from evergraph.experiments.config import merged
    from evergraph.experiments.presets import read_bench

    given = {"datasets": None if datasets is None else datasets.split(","), "seeds": seeds}
    values = read_bench(name) | _without_gaps(given)
    return BenchConfig.of(merged(values, {"plugins": list(plugins)} if plugins else {}))


def default_folder(name: str, *, resume: bool) -> Path:
    """Return a fresh folder below runs/, or with ``resume`` the newest one of that name."""
    base = Path("runs", name)
    numbered = (base.with_name(f"{base.name}-{number}") for number in count(2))
    newest, folder = base, base
    while folder.exists():
        newest, folder = folder, next(numbered)
    return newest if resume else folder


def _without_gaps(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what was not given, and tables of which nothing was."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        inner = _without_gaps(value) if isinstance(value, Mapping) else value
        if inner is not None and inner != {}:
            kept[key] = inner
    return kept


def resources_of(
    memory_limit: str | None,
    scratch: Path | None,
    engine: str = "local",
    address: str | None = None,
    threads: int | None = None,
) -> Callable[[], Resources]:
    """Check what was typed, and return what makes the resources: that needs torch."""
    check_engine(engine, address, threads)
    memory = None if memory_limit is None else parse_size(memory_limit)
    if scratch is not None and not scratch.is_dir():
        raise ConfigurationError(f"scratch must be a folder that exists, not {scratch}")

    def make() -> Resources:
        from evergraph.core.resources import Resources

        able = Resources(memory=memory, scratch=scratch)
        if engine == "local":
            return able
        from evergraph.cluster.engines import make_engine

        made = make_engine(engine, address=address, threads=threads, memory=memory)
        return replace(able, engine=made)

    return make


def parse_budget(text: str | None) -> int | float | None:
    """Read a budget: a whole number, a fraction or a percentage.

    >>> parse_budget("400"), parse_budget("0.01"), parse_budget("5%")
    (400, 0.01, 0.05)
    """
    if text is None:
        return None
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        raise ConfigurationError(
            f"budget must be a number per class, a fraction or a percentage, not {text!r}"
        ) from None


def parse_seeds(text: str | None) -> list[int] | None:
    """Read how many repeats there are, or their seeds: with a comma it is a list.

    >>> parse_seeds("3"), parse_seeds("7,8"), parse_seeds("3,")
    ([0, 1, 2], [7, 8], [3])
    """
    if text is None:
        return None
    parts = text.removesuffix(",").split(",")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        raise ConfigurationError(
            f"seeds must be a number of repeats, or integers between commas, not {text!r}"
        ) from None
    if "," in text:
        return numbers
    if numbers[0] < 1:
        raise ConfigurationError(
            f"seeds must be a number of repeats of at least 1, not {text}: seed {text} alone is "
            f"written '{text},'"
        )
    return list(range(numbers[0]))


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Read ``--set`` options: dotted keys and TOML values (a bare word is text).

    >>> parse_settings(["topology.alpha=0.2", "method=joint"])
    {'topology': {'alpha': 0.2}, 'method': 'joint'}
    """
    from evergraph.experiments.config import merged, nested

    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--set must be KEY=VALUE, not {setting!r}")
        values = merged(values, nested({key.strip(): _value(text)}))
    return values


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
