"""The command that runs a configuration again."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from evergraph.core.plugins import is_file_plugin
from evergraph.experiments.build import resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.dotted import flat, nested

# Choices of which the defaults of others follow: they are said first.
_CHOICES = (
    "dataset.name", "method.name", "backbone.name", "topology.name", "memory.sampler.name",
    "protocol", "seeds", "device", "plugins",
)  # fmt: skip
_OPTIONS = {
    "dataset.name": "--dataset",
    "method.name": "--method",
    "stream.setting": "--setting",
    "backbone.name": "--backbone",
    "protocol": "--protocol",
    "device": "--device",
}
_BARE = re.compile(r"(?!(true|false|inf|nan)$)[A-Za-z][\w-]*")


def command_of(config: RunConfig) -> str:
    """Return the shortest ``evergraph run`` of a configuration: all that is not a default.

    >>> command_of(RunConfig.of({"method": "tem", "memory": {"budget": 20}, "seeds": 3}))
    'evergraph run --dataset wordnet --method tem --set memory.budget=20 --seeds 3'
    """
    wanted = flat(resolved(config).to_dict())
    chosen = {key: wanted[key] for key in _CHOICES if wanted.get(key) not in (None, [])}
    plain = flat(resolved(RunConfig.of(nested(chosen))).to_dict())
    defaults = flat(
        resolved(RunConfig.of(nested({"method.name": wanted["method.name"]}))).to_dict()
    )
    said = {
        key: value
        for key, value in wanted.items()
        if key in ("dataset.name", "method.name", "seeds")
        or (key in chosen and defaults.get(key) != value)
        or (key not in chosen and value is not None and plain.get(key) != value)
    }
    words = [word for key, value in said.items() for word in _words(key, value)]
    return shlex.join(["evergraph", "run", *words])


def without_place(plugin: str) -> str:
    """Return a plugin's name without the folder it lies in, which is nobody else's.

    >>> without_place("/home/me/mine.py"), without_place("my_package.parts")
    ('mine.py', 'my_package.parts')
    """
    return Path(plugin).name if is_file_plugin(plugin) else plugin


def _words(key: str, value: Any) -> list[str]:
    if key in _OPTIONS:
        return [_OPTIONS[key], str(value)]
    if key == "seeds":
        return ["--seeds", _seeds(value)]
    if key == "plugins":
        return [word for source in value for word in ("--plugin", without_place(source))]
    return ["--set", f"{key}={_text(value)}"]


def _seeds(seeds: list[int]) -> str:
    """Return seeds as the command line takes them.

    >>> _seeds([0, 1, 2]), _seeds([7]), _seeds([7, 9])
    ('3', '7,', '7,9')
    """
    if seeds == list(range(len(seeds))):
        return str(len(seeds))
    return f"{seeds[0]}," if len(seeds) == 1 else ",".join(map(str, seeds))


def _text(value: Any) -> str:
    """Return a value as ``--set`` takes it: TOML, a word as it is.

    >>> _text("shuffled"), _text([0.6, 0.2]), _text(True), _text("true")
    ('shuffled', '[0.6, 0.2]', 'true', '"true"')
    """
    if isinstance(value, str) and _BARE.fullmatch(value):
        return value
    return json.dumps(value)
