"""An experiment as a typed record, to and from TOML.

Importing this module loads no torch: names are looked up when the experiment is built.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from evergraph.core.checks import check_integer, check_once
from evergraph.core.component import Part
from evergraph.core.errors import ConfigurationError, DataError, nearest
from evergraph.core.plugins import located

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def counted(seeds: Any) -> Any:
    """Return the seeds that a number of repeats stands for; anything else as it is.

    >>> counted(3), counted([7, 8])
    ([0, 1, 2], [7, 8])
    """
    if not isinstance(seeds, int) or isinstance(seeds, bool):
        return seeds
    check_integer("seeds, where they are a single number and so a count,", seeds, least=1)
    return list(range(seeds))


def _located(plugins: tuple[str, ...]) -> tuple[str, ...]:
    # A worker, or whoever goes on with the run, may be in another folder.
    return tuple(located(source, Path()) for source in plugins)


Seeds = Annotated[tuple[int, ...], BeforeValidator(counted)]
Plugins = Annotated[tuple[str, ...], AfterValidator(_located)]


class Section(Part, BaseModel):
    """A frozen part of a configuration in which nothing unknown may stand."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Component(Part, BaseModel):
    """A registered class by name, with its constructor's keyword parameters.

    >>> Component.model_validate("sgc").name
    'sgc'
    >>> Component.model_validate({"name": "ppr", "alpha": 0.2}).parameters
    {'alpha': 0.2}
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @property
    def parameters(self) -> dict[str, Any]:
        """The keyword parameters."""
        return dict(self.model_extra or {})

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the name and the parameters; they hold no parts."""
        return {"name": self.name, **self.parameters}

    def _repr_facts(self) -> dict[str, Any]:
        return self.get_params()

    _repr_table = _repr_facts


class StreamConfig(Section):
    """How the graph is cut into tasks; see ``GraphStream``."""

    by: str = "class"
    tasks: int | None = None
    blur: float = 1.0
    batch: int | None = None
    classes_per_task: int = 2
    order: Literal["label", "size", "shuffled"] | list[int] = "label"
    edges: str = "within"
    setting: str = "class-il"
    split: tuple[int, int, int] | tuple[float, float, float] = (0.6, 0.2, 0.2)
    labelled: float | None = None
    split_seed: int | Literal["run"] = 0
    min_class_size: int = 3
    known_labels: str = "global"
    unlabelled: str | None = None


class HeadConfig(Section):
    """f_out, and the scaling and storage of what enters it; see ``PDGNN``."""

    hidden: tuple[int, ...] = (512,)
    bias: bool = True
    dropout: float = 0.5
    scaling: str = "unit"
    storage: str = "float32"


class MemoryConfig(Section):
    """What is kept; what is not given is the method's own default."""

    budget: int | float | None = None
    sampler: Component | None = None


class TrainingConfig(Section):
    """How the model is trained, see ``Trainer``; what is not given is the backbone's own recipe."""

    epochs: int | None = None
    lr: float | None = None
    # By size is a rule of the past (decision record 35): it can be read, and no longer be run.
    weight_decay: float | Literal["by-size"] | None = None
    batch_size: int | Literal["full"] | None = None
    momentum: str | None = None
    schedule: str | None = None
    decay: str | None = None
    smoothing: float | None = None
    patience: int | None = None
    evaluate_every: int | None = None
    objective: str | None = None


class RunConfig(Section):
    """A whole experiment. Every field has a default: ``RunConfig()`` runs.

    ``backbone`` is the method's own default unless given; ``topology`` and ``head`` are those of
    backbone ``pdgnn``. ``directions``: whether the way that edges run is kept as a relation where
    they are made to run both ways. ``seeds``: a repeat each; a single number N stands for 0 to
    N - 1. ``part``: the nodes tested on. ``test_every``: after how many tasks, or steps where tasks
    arrive in batches, a test comes, as one does after the last; unless given after each task, and
    where tasks arrive in batches about 20 times in all. ``measures``: whether to test, each time,
    on what comes next as well, see ``evaluate``. ``threads``: how many torch has, on which the last
    digits of sums depend; unless given, no number depends on how many there are. ``plugins``:
    files or modules that define parts, see ``load_plugin``.

    ``protocol``: the paper whose rules the rest follows and whose number stands first, see
    ``read_protocol``; naming it here changes no other value.

    >>> RunConfig.of({"topology": {"name": "ppr", "hops": 3}}).topology.parameters
    {'hops': 3}
    >>> RunConfig.of({"seeds": 3}).seeds
    (0, 1, 2)
    """

    dataset: Component = Component(name="wordnet")
    undirected: bool = True
    directions: bool = False
    method: Component = Component(name="auto")
    backbone: Component | None = None
    topology: Component = Component(name="sgc")
    stream: StreamConfig = StreamConfig()
    memory: MemoryConfig = MemoryConfig()
    head: HeadConfig = HeadConfig()
    training: TrainingConfig = TrainingConfig()
    seeds: Seeds = Field(default=(0,), min_length=1)
    part: Literal["test", "validation"] = "test"
    test_every: int | None = Field(default=None, ge=1)
    measures: bool = False
    device: str = "auto"
    threads: int | None = Field(default=None, ge=1)
    plugins: Plugins = ()
    protocol: str | None = None

    @field_validator("seeds")
    @classmethod
    def _once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        check_once("seeds", seeds)  # a repeat that is counted twice would narrow the deviation
        return seeds

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunConfig:
        """Return the configuration that these values describe, or say what is wrong with them."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigurationError(complaint(error, cls, "the configuration")) from None

    def _repr_facts(self) -> dict[str, Any]:
        """Return what differs from the defaults as plain values, which the constructor takes."""
        given = self.model_dump(exclude_defaults=True)
        return {key: v["name"] if _only_named(v) else v for key, v in given.items()}

    def _repr_table(self) -> dict[str, Any]:
        return self.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as TOML and JSON hold them."""
        return self.model_dump(mode="json")

    def to_toml(self) -> str:
        """Return the configuration as TOML."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def complaint(
    error: ValidationError, model: type[BaseModel], whole: str, *, elsewhere: Iterable[str] = ()
) -> str:
    """Return one sentence on what is wrong with some values.

    Args:
        error: what pydantic found.
        model: what the values were meant for.
        whole: what to call it.
        elsewhere: dotted keys beyond its own, one of which may have been meant.
    """
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return f"{where or whole}: {first['msg'].lower()}, not {first['input']!r}"
    *tables, key = map(str, first["loc"])
    table = model
    for name in tables:
        table = _section(table, name) or table
    prefix = "".join(f"{name}." for name in tables)
    own = {name: f"{prefix}{name}" for name in table.model_fields}
    # Or the name is right and its place is wrong, such as epochs for training.epochs.
    places = {dotted.rpartition(".")[2]: dotted for dotted in [*elsewhere, *keys(model)]}
    meant = own.get(nearest(key, own)) or places.get(nearest(key, places))
    hint = "" if meant is None else f"did you mean {meant!r}? "
    takes = f"{'.'.join(tables) or whole} takes {', '.join(table.model_fields)}"
    return f"unknown key {where!r}: {hint}{takes}"


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted keys of a configuration, those of its tables included.

    >>> keys(TrainingConfig, "training.")[:2]
    ['training.epochs', 'training.lr']
    """
    found: list[str] = []
    for name in model.model_fields:
        section = _section(model, name)
        own = f"{prefix}{name}"
        found += [own] if section is None else [own, *keys(section, f"{own}.")]
    return found


def _section(model: type[BaseModel], name: str) -> type[Section] | None:
    kind = model.model_fields[name].annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _only_named(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"name"}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` laid over it, table by table.

    A component that changes its name loses the parameters of the old one. Plugins add up.

    >>> merged({"topology": {"name": "ppr", "alpha": 0.2}}, {"topology": {"name": "sgc"}})
    {'topology': {'name': 'sgc'}}
    """
    result = dict(base)
    for key, value in over.items():
        if key == "plugins" and isinstance(value, list) and isinstance(result.get(key), list):
            result[key] = list(dict.fromkeys([*result[key], *value]))
            continue
        old = _table(result.get(key))
        new = _table(value) if isinstance(result.get(key), Mapping) else value
        if isinstance(old, Mapping) and isinstance(new, Mapping) and not _renames(old, new):
            result[key] = merged(old, new)
        else:
            result[key] = value
    return result


def _table(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _renames(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "name" in new and "name" in old and new["name"] != old["name"]


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file; paths of plugins count from the folder it lies in."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is not valid TOML: {error}") from None
    plugins = values.get("plugins")
    if isinstance(plugins, list) and all(isinstance(source, str) for source in plugins):
        values["plugins"] = [located(source, path.parent) for source in plugins]
    return values


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, keys joined by dots.

    >>> flat({"training": {"lr": 0.1}, "seeds": [0]})
    {'training.lr': 0.1, 'seeds': [0]}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        result |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return result


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables that dotted keys stand for.

    >>> nested({"training.lr": 0.1, "training.epochs": 3})
    {'training': {'lr': 0.1, 'epochs': 3}}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        table: Any = value
        for part in reversed(key.split(".")):
            table = {part: table}
        result = merged(result, table)
    return result
