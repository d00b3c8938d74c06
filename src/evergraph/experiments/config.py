"""An experiment as a typed record, to and from TOML.

Importing this module loads no torch: names are looked up when the experiment is built.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from evergraph.core.checks import check_once
from evergraph.core.errors import ConfigurationError, DataError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Section(BaseModel):
    """A frozen part of a configuration in which nothing unknown may stand."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Component(BaseModel):
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


class StreamConfig(Section):
    """How the graph is cut into tasks; see ``GraphStream``."""

    by: str = "class"
    tasks: int | None = None
    blur: float = 1.0
    classes_per_task: int = 2
    order: Literal["label", "shuffled"] | list[int] = "label"
    edges: str = "within"
    setting: str = "class-il"
    split: tuple[float, float, float] = (0.6, 0.2, 0.2)
    split_seed: int | Literal["run"] = 0
    min_class_size: int = 3


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
    weight_decay: float | None = None
    batch_size: int | Literal["full"] | None = None
    momentum: str | None = None
    schedule: str | None = None


class RunConfig(Section):
    """A whole experiment. Every field has a default: ``RunConfig()`` runs.

    ``backbone`` is the method's own default unless given; ``topology`` and ``head`` are those of
    backbone ``pdgnn``. ``part``: the nodes tested on. ``measures``: whether to test, after each
    task, on what comes next as well, see ``evaluate``.

    >>> RunConfig.of({"topology": {"name": "ppr", "hops": 3}}).topology.parameters
    {'hops': 3}
    """

    dataset: Component = Component(name="wordnet")
    undirected: bool = True
    method: Component = Component(name="tem")
    backbone: Component | None = None
    topology: Component = Component(name="sgc")
    stream: StreamConfig = StreamConfig()
    memory: MemoryConfig = MemoryConfig()
    head: HeadConfig = HeadConfig()
    training: TrainingConfig = TrainingConfig()
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    part: Literal["test", "validation"] = "test"
    measures: bool = False
    device: str = "auto"

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
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the configuration"
            raise ConfigurationError(
                f"{where}: {first['msg'].lower()}, not {first['input']!r}"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as TOML and JSON hold them."""
        return self.model_dump(mode="json")

    def to_toml(self) -> str:
        """Return the configuration as TOML."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` laid over it, table by table.

    A component that changes its name loses the parameters of the old one.

    >>> merged({"topology": {"name": "ppr", "alpha": 0.2}}, {"topology": {"name": "sgc"}})
    {'topology': {'name': 'sgc'}}
    """
    result = dict(base)
    for key, value in over.items():
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
    """Return the values of a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is not valid TOML: {error}") from None
