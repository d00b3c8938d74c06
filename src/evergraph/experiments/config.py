"""An experiment as a typed record, to and from TOML.

Importing this module does not load torch: names are resolved when the experiment is built.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from evergraph.core.component import Part
from evergraph.core.errors import ConfigurationError, DataError, check_integer, check_once, nearest
from evergraph.core.packages import located, tomllib


def _located(plugins: tuple[str, ...]) -> tuple[str, ...]:
    # A worker, or a later resume, may run in another folder.
    return tuple(located(source, Path()) for source in plugins)


M = TypeVar("M", bound=BaseModel)
Plugins = Annotated[tuple[str, ...], AfterValidator(_located)]


class Section(Part, BaseModel):
    """Frozen part of a configuration that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SeededSection(Section):
    """Configuration with ``seeds``, which may also be given as ``seed`` or ``repeats``."""

    @model_validator(mode="before")
    @classmethod
    def _seeds_of(cls, values: Any) -> Any:
        return with_seeds(values) if isinstance(values, Mapping) else values

    @field_validator("seeds", check_fields=False)
    @classmethod
    def _once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        check_once("seeds", seeds)  # a repeat counted twice would shrink the deviation
        return seeds


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
        return {"name": self.name, **self.parameters}

    def _repr_facts(self) -> dict[str, Any]:
        return self.get_params()

    _repr_table = _repr_facts


class StreamConfig(Section):
    """How the graph is cut into tasks; see ``GraphStream``.

    ``split_seed``: of the split; with ``split = "masks"`` the column of the masks. ``run`` is the
    run's own seed.
    """

    by: str = "class"
    tasks: int | None = None
    blur: float = 1.0
    batch: int | None = None
    classes_per_task: int = 2
    order: Literal["label", "size", "shuffled"] | list[int] = "label"
    edges: str = "within"
    setting: str = "class-il"
    split: tuple[int, int, int] | tuple[float, float, float] | Literal["masks"] = (0.6, 0.2, 0.2)
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
    """What the method keeps; values that are not given are the method's defaults."""

    budget: int | float | None = None
    sampler: Component | None = None


class TrainingConfig(Section):
    """How the model is trained, see ``Trainer``; missing values come from the backbone's recipe."""

    epochs: int | None = None
    lr: float | None = None
    weight_decay: float | None = None
    batch_size: int | Literal["full"] | None = None
    momentum: str | None = None
    schedule: str | None = None
    decay: str | None = None
    smoothing: float | None = None
    patience: int | None = None
    evaluate_every: int | None = None
    objective: str | None = None


class RunConfig(SeededSection):
    """A whole experiment. Every field has a default: ``RunConfig()`` runs.

    ``backbone`` defaults to the method's own; ``topology`` and ``head`` apply to backbone
    ``pdgnn``. ``directions``: whether the direction of edges is kept as a relation when they are
    made undirected. ``seeds``: one repeat each; ``seed = 5`` means only seed 5, and ``repeats = 3``
    means seeds 0, 1 and 2. ``part``: the nodes to test on. ``test_every``: the number of tasks, or
    of steps if tasks arrive in batches, between tests; there is always a test after the last one.
    By default every task is followed by a test; if tasks arrive in batches, there are about 20
    tests. ``measures``: whether each test also covers the next task, see ``evaluate``. ``threads``:
    torch's threads, on which the last digits of sums depend; if not given, results do not depend on
    the number of threads. ``plugins``: files or modules that define components, see
    ``load_plugin``.

    ``objective``, which is kept in ``training``, is what accuracy to learn for: ``balanced`` or
    ``plain``. Methods that cannot choose refuse it.

    ``protocol``: the paper whose rules are followed and whose measure is reported first, see
    ``read_protocol``; setting it here changes no other value.

    >>> RunConfig.of({"topology": {"name": "ppr", "hops": 3}}).topology.parameters
    {'hops': 3}
    >>> RunConfig.of({"repeats": 3}).seeds, RunConfig.of({"seed": 5}).seeds
    ((0, 1, 2), (5,))
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
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    part: Literal["test", "validation"] = "test"
    test_every: int | None = Field(default=None, ge=1)
    measures: bool = False
    device: str = "auto"
    threads: int | None = Field(default=None, ge=1)
    plugins: Plugins = ()
    protocol: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _objective_of(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or "objective" not in values:
            return values
        training = {**dict(values.get("training", {})), "objective": values["objective"]}
        return {k: v for k, v in values.items() if k != "objective"} | {"training": training}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunConfig:
        """Return the configuration with these values; raise an error that explains a wrong one."""
        return validated(cls, values, "the configuration")

    def _repr_facts(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, as the constructor takes them."""
        values = self.model_dump(exclude_defaults=True)
        for key, value in values.items():
            if isinstance(value, dict) and value.keys() == {"name"}:
                values[key] = value["name"]
        return values

    def _repr_table(self) -> dict[str, Any]:
        return self.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for TOML and JSON."""
        return self.model_dump(mode="json")

    def to_toml(self) -> str:
        """Return the configuration as TOML."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def validated(
    model: type[M], values: Mapping[str, Any], record: str, *, elsewhere: Iterable[str] = ()
) -> M:
    """Return the record with these values; raise one sentence that explains a wrong one.

    record: its name in the sentence. elsewhere: further dotted keys to suggest.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        message = _explained(error, model, record, elsewhere)
        raise ConfigurationError(message) from None


def _explained(
    error: ValidationError, model: type[BaseModel], record: str, elsewhere: Iterable[str]
) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return f"{path or record}: {first['msg'].lower()}, not {first['input']!r}"
    *tables, key = map(str, first["loc"])
    table = model
    for name in tables:
        table = _section(table, name) or table
    prefix = "".join(f"{name}." for name in tables)
    in_table = {name: f"{prefix}{name}" for name in table.model_fields}
    # The name may be right but in the wrong table, such as epochs for training.epochs.
    anywhere = {dotted.rpartition(".")[2]: dotted for dotted in [*elsewhere, *keys(model)]}
    meant = in_table.get(nearest(key, in_table)) or anywhere.get(nearest(key, anywhere))
    hint = "" if meant is None else f"did you mean {meant!r}? "
    takes = f"{'.'.join(tables) or record} takes {', '.join(table.model_fields)}"
    return f"unknown key {path!r}: {hint}{takes}"


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted keys of a configuration, including those of its tables."""
    dotted: list[str] = []
    for name in model.model_fields:
        key = f"{prefix}{name}"
        dotted.append(key)
        section = _section(model, name)
        if section is not None:
            dotted += keys(section, f"{key}.")
    return dotted


def _section(model: type[BaseModel], name: str) -> type[Section] | None:
    annotation = model.model_fields[name].annotation
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return None


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` updated with the values of ``over``, table by table.

    A component whose name changes loses the old one's parameters. Plug-ins are combined.

    >>> merged({"topology": {"name": "ppr", "alpha": 0.2}}, {"topology": {"name": "sgc"}})
    {'topology': {'name': 'sgc'}}
    """
    result = dict(base)
    for key, value in over.items():
        if key == "plugins" and isinstance(value, list) and isinstance(result.get(key), list):
            result[key] = list(dict.fromkeys([*result[key], *value]))
            continue
        # A component may be given by its name alone.
        old, new = result.get(key), value
        if isinstance(old, Mapping) and isinstance(new, str):
            new = {"name": new}
        old = {"name": old} if isinstance(old, str) else old
        result[key] = value
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            renamed = "name" in new and "name" in old and new["name"] != old["name"]
            result[key] = value if renamed else merged(old, new)
    return result


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file; plug-in paths are relative to its folder."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not valid TOML: {error}") from None
    plugins = values.get("plugins")
    if isinstance(plugins, list) and all(isinstance(source, str) for source in plugins):
        values["plugins"] = [located(source, path.parent) for source in plugins]
    return with_seeds(values)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables, joining keys by dots.

    >>> flat({"training": {"lr": 0.1}, "seeds": [0]})
    {'training.lr': 0.1, 'seeds': [0]}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        result |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return result


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences of two configurations by dotted key, except device and plugins.

    >>> differences({"seeds": [0], "device": "cpu"}, {"seeds": [0, 1], "device": "cuda"})
    {'seeds': ([0], [0, 1])}
    """
    left, right = flat(ours), flat(theirs)
    return {
        key: (left.get(key), right.get(key))
        for key in sorted(left.keys() | right.keys())
        if key not in ("device", "plugins") and left.get(key) != right.get(key)
    }


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into nested tables.

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


SEEDING = ("seed", "seeds", "repeats")


def with_seeds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with ``seed`` or ``repeats`` replaced by ``seeds``.

    >>> with_seeds({"seed": 5}), with_seeds({"repeats": 3}), with_seeds({"seeds": (7, 8)})
    ({'seeds': [5]}, {'seeds': [0, 1, 2]}, {'seeds': [7, 8]})
    >>> with_seeds({"seed": 5, "repeats": 3})
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: only one of seed, seeds and repeats can be given, \
not seed and repeats
    """
    given = [key for key in SEEDING if values.get(key) is not None]
    others = {name: value for name, value in values.items() if name not in SEEDING}
    if not given:
        return others
    if len(given) > 1:
        raise ConfigurationError(
            f"only one of seed, seeds and repeats can be given, not {' and '.join(given)}"
        )
    [key] = given
    value = values[key]
    if key == "repeats":
        check_integer("repeats", value, least=1)
        return others | {"seeds": list(range(operator.index(value)))}
    if key == "seed":
        check_integer("seed", value, least=0)
        return others | {"seeds": [operator.index(value)]}
    if isinstance(value, int):
        rule = f"write seed = {value}, or repeats = {value} for that many seeds"
        raise ConfigurationError(f"seeds must be a list such as [0], not {value}: {rule}")
    if isinstance(value, Iterable) and not isinstance(value, str):
        value = list(value)
    return others | {"seeds": value}
