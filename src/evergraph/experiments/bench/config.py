"""A benchmark as a typed record, from TOML: methods x datasets x settings x seeds.

Importing this module loads no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, ValidationError, field_validator

from evergraph.core.checks import check_once
from evergraph.core.errors import ConfigurationError
from evergraph.experiments.config import (
    Component,
    Plugins,
    RunConfig,
    Section,
    Seeds,
    complaint,
    flat,
    keys,
)


def short_text(value: Any) -> str:
    """Return a value in few letters, all of them fit for a folder's name.

    >>> short_text(1e4), short_text("mean-feature"), short_text([64, 32])
    ('10000', 'mean-feature', '64-32')
    """
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")


Setting = Literal["class-il", "task-il"]
Values = dict[str, Any]
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]

# Labels are names of folders, and reports leave out what lies below a folder "search".
_LABEL = re.compile(r"[A-Za-z0-9][\w.+@-]*")
_TAKEN = "search"


class DatasetEntry(Component):
    """A dataset by name or path.

    Attributes:
        label: what its rows and its folder are called.
        run: values of ``RunConfig`` for this dataset only, such as how many classes a task has.

    >>> DatasetEntry.model_validate("graphs/photo.npz").called
    'photo'
    """

    label: str | None = None
    run: Values = Field(default_factory=dict)

    @property
    def called(self) -> str:
        """The label, or else the name or the file's stem."""
        return self.label or Path(self.name).stem


class MethodEntry(Component):
    """A method with its parameters, and what else is different where it runs.

    Attributes:
        label: what its rows and its folder are called; the name unless given.
        preset: whose values it begins with, by name or path.
        run: values of ``RunConfig`` for this method only.
        settings: further ones for one setting only.
        grid: values to search, by dotted key of ``RunConfig``.
        sweep: one dotted key and its values: a method each, called LABEL@VALUE, which reports read
            as one family. What is swept is not searched.

    >>> small = MethodEntry.model_validate({"name": "tem", "sweep": {"memory.budget": [5, 20]}})
    >>> [method.called for method in small.variants]
    ['tem@5', 'tem@20']
    """

    label: str | None = None
    preset: str | None = None
    run: Values = Field(default_factory=dict)
    settings: dict[Setting, Values] = Field(default_factory=dict)
    grid: Grid = Field(default_factory=dict)
    sweep: Grid = Field(default_factory=dict, max_length=1)

    @field_validator("grid", "sweep", mode="before")
    @classmethod
    def _dotted(cls, value: Any) -> Any:
        return flat(value) if isinstance(value, Mapping) else value

    @property
    def called(self) -> str:
        """The label, or else the name."""
        return self.label or self.name

    @property
    def variants(self) -> tuple[MethodEntry, ...]:
        """A method for every swept value, with that value alone in its sweep; itself if none is."""
        return tuple(
            self.model_copy(
                update={"label": f"{self.called}@{short_text(value)}", "sweep": {key: [value]}}
            )
            for key, values in self.sweep.items()
            for value in values
        ) or (self,)


class SearchConfig(Section):
    """How the best combination of a grid is told: by AA on validation nodes, of one seed.

    ``seed`` is the benchmark's first unless given.
    """

    testing: Literal["local", "global"] = "local"
    seed: int | None = None


class BenchConfig(Section):
    """A whole benchmark; ``common`` holds values of ``RunConfig`` for every run.

    ``seeds`` and ``plugins`` are those of ``RunConfig``.

    >>> bench = BenchConfig.of({"datasets": ["synthetic"], "methods": ["finetune", "tem"]})
    >>> [method.called for method in bench.variants]
    ['finetune', 'tem']
    """

    datasets: tuple[DatasetEntry, ...] = Field(min_length=1)
    settings: tuple[Setting, ...] = Field(default=("class-il",), min_length=1)
    seeds: Seeds = Field(default=(0,), min_length=1)
    common: Values = Field(default_factory=dict)
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    search: SearchConfig = SearchConfig()
    plugins: Plugins = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> BenchConfig:
        """Return the benchmark that these values describe, or say what is wrong with them."""
        try:
            bench = cls.model_validate(dict(values))
        except ValidationError as error:
            common = keys(RunConfig, "common.")
            said = complaint(error, cls, "the benchmark", elsewhere=common)
            raise ConfigurationError(said) from None
        _check_labels("methods", [method.called for method in bench.variants])
        _check_labels("datasets", [dataset.called for dataset in bench.datasets])
        check_once("settings", bench.settings)
        check_once("seeds", bench.seeds)
        return bench

    @property
    def variants(self) -> tuple[MethodEntry, ...]:
        """All methods, sweeps taken apart."""
        return tuple(variant for method in self.methods for variant in method.variants)

    def to_toml(self) -> str:
        """Return the benchmark as TOML."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def _check_labels(kind: str, labels: list[str]) -> None:
    check_once(kind, labels, remedy=": give one of them a label")
    for label in labels:
        if not _LABEL.fullmatch(label) or label == _TAKEN:
            raise ConfigurationError(
                f"{kind}: a label must be a name fit for a folder, of letters, digits and .+-_@, "
                f"and not {_TAKEN!r}, not {label!r}"
            )
