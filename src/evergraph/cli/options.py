"""Options shared by several commands, and their conversion to a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.core.errors import ConfigurationError
from evergraph.core.packages import tomllib
from evergraph.core.sizes import parse_size

# Modules that need pydantic are imported where they are used, to keep ``--help`` quick.
if TYPE_CHECKING:
    from evergraph.core.resources import Resources
    from evergraph.experiments.bench.jobs import BenchConfig
    from evergraph.experiments.config import RunConfig

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Address = Annotated[
    str | None, typer.Option(help="A Ray cluster to join: auto or host:port (default: start one).")
]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda (default: auto).")]
Directed = Annotated[bool, typer.Option("--directed", help="Keep edges in one direction.")]
Engine = Annotated[str, typer.Option(help="Where to compute: local (this machine) or ray.")]
LearnerTarget = Annotated[str, typer.Argument(help="A learner's folder, or the URL of a service.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(help="Maximum memory to use, such as 4GB (default: most of the free memory)."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing graph.")]
Plugins = Annotated[
    list[str],
    typer.Option(
        "--plugin",
        metavar="FILE.py|MODULE",
        help="Plug-in with your own components; may be repeated (default: none).",
    ),
]
Preset = Annotated[
    str | None, typer.Option(help="A preset's name, or a TOML file (default: none).")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="Follow a paper's protocol: paper, cglb, puma, delome, tpp, llm4gcl or ocgl (default: "
        "none; see evergraph list protocols)."
    ),
]
ResultsFolder = Annotated[
    Path | None, typer.Option("--out", help="Results folder (default: a new one in runs/).")
]
Scratch = Annotated[
    Path | None,
    typer.Option(help="Folder for data beyond memory (default: the system's temporary folder)."),
]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, such as stream.edges=all."),
]
WorkerThreads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads per Ray worker (default: 1, or its share of this machine)."),
]
AUTO = "auto"


def option(help: str, *names: str, default: Any = None, **more: Any) -> Any:
    """Return an option of a command, by default not given."""
    return typer.Option(default, *names, help=help, **more)


def flag(name: str, help: str) -> Any:
    """Return an option of a command that is on if it is given."""
    return typer.Option(False, name, help=help)


def argument(help: str, *, default: Any = ..., **more: Any) -> Any:
    """Return an argument of a command, by default required."""
    return typer.Argument(default, help=help, **more)


def options_of_auto(memory: str | None, views: str | None) -> dict[str, Any]:
    """Return the options of method ``auto`` as a partial configuration."""
    options: dict[str, Any] = {}
    if memory is not None:
        parse_size(memory)
        options["method"] = {"name": AUTO, "memory": memory}
    if views is not None:
        options["backbone"] = {"name": "view-features", "views": views.split(",")}
    return options


def configs_of_methods(
    methods: str | None,
    preset: str | None,
    option_values: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    auto: Mapping[str, Any] | None = None,
) -> list[RunConfig]:
    """Return one configuration per comma-separated method; the other options apply to all.

    Options override preset, protocol and defaults, in this order. auto: options of method ``auto``;
    if any are given, it must be among the methods.
    """
    from evergraph.experiments.config import RunConfig, merged
    from evergraph.experiments.presets import layered, read_preset

    def config_of(name: str | None) -> RunConfig:
        typed = _without_unset({**option_values, "method": name})
        values: dict[str, Any] = {}

        def layered_config(values: Mapping[str, Any]) -> RunConfig:
            return RunConfig.of(layered(RunConfig().to_dict(), values, typed, settings))

        if preset is not None:  # whose values may depend on the method, which it may name itself
            values = read_preset(preset, layered_config(read_preset(preset)).method.name)
        return layered_config(values)

    configs = [config_of(name) for name in ([None] if methods is None else methods.split(","))]
    if auto:
        if AUTO not in [config.method.name for config in configs]:
            raise ConfigurationError("--memory and --views need method auto, which is not run")
        configs = [
            RunConfig.of(merged(config.to_dict(), auto)) if config.method.name == AUTO else config
            for config in configs
        ]
    names = [config.method.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"method must name each method once, not {name!r} twice")
    return configs


def check_used(
    configs: Sequence[RunConfig], option_values: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Raise if no method uses one of the options or settings; say which ones some do not use."""
    from evergraph.core.errors import say_ignored
    from evergraph.experiments.build import unused

    unused_by_method = {}
    for config in configs:
        keys = [key.removesuffix(".name") for key in unused(config, _without_unset(option_values))]
        typed = [f"--{key.split('.')[-1].replace('_', '-')}" for key in keys]
        unused_by_method[config.method.name] = [*typed, *unused(config, settings)]
    first_unused = next(iter(unused_by_method.values()))
    everywhere = [
        key for key in first_unused if all(key in keys for keys in unused_by_method.values())
    ]
    if everywhere:
        methods = " and ".join(unused_by_method)
        verb = "does" if len(unused_by_method) == 1 else "do"
        raise ConfigurationError(
            f"{methods} {verb} not use {', '.join(everywhere)}: leave that out"
        )
    for method, keys in unused_by_method.items():
        say_ignored(method, "option", keys, "the method does not use it")


def bench_of(
    name: str,
    *,
    datasets: str | None = None,
    seeds: list[int] | None = None,
    plugins: Sequence[str] = (),
) -> BenchConfig:
    """Read a benchmark; ``datasets`` (comma-separated) and ``seeds`` replace those of the file.

    ``plugins`` are added to those of the file.
    """
    from evergraph.experiments.bench.jobs import BenchConfig
    from evergraph.experiments.config import merged
    from evergraph.experiments.presets import read_bench

    replaced = {"datasets": None if datasets is None else datasets.split(","), "seeds": seeds}
    values = read_bench(name) | _without_unset(replaced)
    return BenchConfig.of(merged(values, {"plugins": list(plugins)} if plugins else {}))


def default_folder(name: str, *, resume: bool) -> Path:
    """Return a new folder in runs/, or with ``resume`` the newest one of that name."""
    base = Path("runs", name)
    numbered = (base.with_name(f"{base.name}-{number}") for number in count(2))
    newest, folder = base, base
    while folder.exists():
        newest, folder = folder, next(numbered)
    return newest if resume else folder


def _without_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop options that were not given, and tables that are then empty."""
    set_values: dict[str, Any] = {}
    for key, value in values.items():
        inner = _without_unset(value) if isinstance(value, Mapping) else value
        if inner is not None and inner != {}:
            set_values[key] = inner
    return set_values


def resources_of(
    memory_limit: str | None,
    scratch: Path | None,
    engine: str = "local",
    address: str | None = None,
    threads: int | None = None,
) -> Callable[[], Resources]:
    """Check the options, and return a function that makes the resources, which imports torch."""
    from evergraph.core.resources import check_engine

    check_engine(engine, address, threads)
    memory = None if memory_limit is None else parse_size(memory_limit)
    if scratch is not None and not scratch.is_dir():
        raise ConfigurationError(f"scratch must be an existing folder, not {scratch}")

    def make() -> Resources:
        from evergraph.core.resources import Resources

        resources = Resources(memory_limit=memory, scratch=scratch)
        if engine == "local":
            return resources
        from evergraph.cluster.ray_engine import make_engine

        made_engine = make_engine(engine, address=address, threads=threads, memory=memory)
        return replace(resources, engine=made_engine)

    return make


def parse_budget(text: str | None) -> int | float | None:
    """Read a budget: a whole number, a fraction or a percentage."""
    if text is None:
        return None
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        message = f"budget must be nodes per class, a fraction or a percentage, not {text!r}"
        raise ConfigurationError(message) from None


def parse_split(text: str | None) -> str | list[int] | list[float] | None:
    """Read a split: a name, or three numbers.

    >>> parse_split("masks"), parse_split("200,50,200"), parse_split("0.5,0.25,0.25")
    ('masks', [200, 50, 200], [0.5, 0.25, 0.25])
    """
    if text in (None, "masks"):
        return text
    try:
        parts = text.split(",")
        if len(parts) == 3:
            is_integers = "." not in text
            return [int(part) for part in parts] if is_integers else [float(part) for part in parts]
        raise ValueError(text)
    except ValueError:
        message = f"--split must be masks or three numbers such as 0.6,0.2,0.2, not {text!r}"
        raise ConfigurationError(message) from None


@dataclass(frozen=True)
class SeedOptions:
    """The seeds of a command's repeats.

    >>> SeedOptions(seeds="7,8").chosen, SeedOptions(repeats=3).chosen, SeedOptions().chosen
    ([7, 8], [0, 1, 2], None)
    """

    seed: Annotated[
        int | None, typer.Option(help="A single seed, such as 5 (default: see --repeats).")
    ] = None
    seeds: Annotated[
        str | None,
        typer.Option(help="Comma-separated seeds, such as 0,1,2 (default: see --repeats)."),
    ] = None
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds, counted from 0 (default: 1, the file's, or 3 of a study)."
        ),
    ] = None

    @property
    def chosen(self) -> list[int] | None:
        """The seeds, None if none are given."""
        from evergraph.experiments.config import with_seeds

        listed = None if self.seeds is None else self.seeds.removesuffix(",").split(",")
        try:
            numbers = None if listed is None else [int(part) for part in listed]
        except ValueError:
            message = f"--seeds must be comma-separated integers, such as 0,1,2, not {self.seeds!r}"
            raise ConfigurationError(message) from None
        values = with_seeds({"seed": self.seed, "seeds": numbers, "repeats": self.repeats})
        seeds: list[int] | None = values.get("seeds")
        return seeds


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parse ``--set`` options: dotted keys and TOML values (a bare word is text)."""
    from evergraph.experiments.config import merged, nested, with_seeds

    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--set must be KEY=VALUE, not {setting!r}")
        value: Any = text.strip()
        with suppress(tomllib.TOMLDecodeError):
            value = tomllib.loads(f"value = {text}")["value"]
        values = merged(values, nested({key.strip(): value}))
    return with_seeds(values)
