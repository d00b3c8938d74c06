"""A benchmark as a typed record, from TOML: methods x datasets x settings x seeds.

Importing this module does not load torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, field_validator

from evergraph.core.errors import ConfigurationError, check_once
from evergraph.experiments.config import (
    Component,
    Plugins,
    RunConfig,
    Section,
    SeededSection,
    flat,
    keys,
    validated,
)

Setting = Literal["class-il", "task-il"]
Values = dict[str, Any]
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]
# Labels are folder names, and reports skip folders named "search".
_LABEL = re.compile(r"[A-Za-z0-9][\w.+@-]*")
_TAKEN = "search"


def short_text(value: Any) -> str:
    """Return a short text for a value that can be part of a folder's name."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")


class DatasetEntry(Component):
    """A dataset by name or path.

    >>> DatasetEntry.model_validate("graphs/photo.npz").called
    'photo'
    """

    label: str | None = None  # name of its rows and folder
    run: Values = Field(default_factory=dict)  # values of ``RunConfig`` for this dataset only

    @property
    def called(self) -> str:
        """The label, or else the name or the file's stem."""
        return self.label or Path(self.name).stem


class MethodEntry(Component):
    """A method with its parameters and its own run settings.

    >>> small = MethodEntry.model_validate({"name": "tem", "sweep": {"memory.budget": [5, 20]}})
    >>> [method.called for method in small.variants]
    ['tem@5', 'tem@20']
    """

    label: str | None = None  # name of its rows and folder; the method's name by default
    preset: str | None = None  # name or path of the preset that it starts from
    run: Values = Field(default_factory=dict)  # values of ``RunConfig`` for this method only
    # Further values for one setting only.
    settings: dict[Setting, Values] = Field(default_factory=dict)
    grid: Grid = Field(default_factory=dict)  # values to search, by dotted key of ``RunConfig``
    # One dotted key and its values. Each value is a method called LABEL@VALUE; reports treat them
    # as one family. A swept key is not searched.
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
        """One method per swept value, with only this value in its sweep; itself without a sweep."""
        return tuple(
            self.model_copy(
                update={"label": f"{self.called}@{short_text(value)}", "sweep": {key: [value]}}
            )
            for key, values in self.sweep.items()
            for value in values
        ) or (self,)


class SearchConfig(Section):
    """How the best combination of a grid is chosen: by AA on validation nodes, with one seed."""

    testing: Literal["local", "global"] = "local"
    seed: int | None = None  # the benchmark's first by default


class BenchConfig(SeededSection):
    """A whole benchmark; ``seeds`` and ``plugins`` are those of ``RunConfig``."""

    datasets: tuple[DatasetEntry, ...] = Field(min_length=1)
    settings: tuple[Setting, ...] = Field(default=("class-il",), min_length=1)
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    common: Values = Field(default_factory=dict)  # of ``RunConfig``, for every run
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    search: SearchConfig = SearchConfig()
    plugins: Plugins = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> BenchConfig:
        """Return the benchmark with these values; raise an error that explains a wrong one."""
        common = keys(RunConfig, "common.")
        bench = validated(cls, values, "the benchmark", elsewhere=common)
        _check_labels("methods", [method.called for method in bench.variants])
        _check_labels("datasets", [dataset.called for dataset in bench.datasets])
        check_once("settings", bench.settings)
        return bench

    @property
    def variants(self) -> tuple[MethodEntry, ...]:
        """All methods, with one entry per swept value."""
        return tuple(variant for method in self.methods for variant in method.variants)

    def to_toml(self) -> str:
        """Return the benchmark as TOML."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def _check_labels(kind: str, labels: list[str]) -> None:
    check_once(kind, labels, remedy=": give one of them a label")
    for label in labels:
        if not _LABEL.fullmatch(label) or label == _TAKEN:
            raise ConfigurationError(
                f"{kind}: a label must be a folder name of letters, digits and .+-_@ other than "
                f"{_TAKEN!r}, not {label!r}"
            )
