"""A benchmark as a typed record, from TOML: methods x datasets x settings x seeds, and its runs.

Hyper-parameters are chosen as in CGLB: every combination is tried on validation nodes with one
seed, and the best is kept, separately for each (method, dataset, setting). Test nodes are not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, field_validator

from evergraph.core.errors import (
    ConfigurationError,
    EvergraphError,
    check_choice,
    check_integer,
    check_once,
)
from evergraph.datasets.loading import check_source
from evergraph.evaluation.evaluator import main_key
from evergraph.experiments.build import check
from evergraph.experiments.config import (
    SEEDING,
    Component,
    Plugins,
    RunConfig,
    Section,
    SeededSection,
    flat,
    keys,
    merged,
    nested,
    validated,
)
from evergraph.experiments.presets import grids, layered, read_preset
from evergraph.experiments.store import SEARCH
from evergraph.streams.stream import EDGES
from evergraph.streams.ways import check_way

Setting = Literal["class-il", "task-il"]
Values = dict[str, Any]
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]
# Labels are folder names, and reports skip folders named "search".
_LABEL = re.compile(r"[A-Za-z0-9][\w.+@-]*")
_RESERVED = "search"


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
        if not self.sweep:
            return (self,)
        [(key, values)] = self.sweep.items()
        labels = [f"{self.called}@{short_text(value)}" for value in values]
        return tuple(
            self.model_copy(update={"label": label, "sweep": {key: [value]}})
            for label, value in zip(labels, values, strict=True)
        )


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
        if not _LABEL.fullmatch(label) or label == _RESERVED:
            raise ConfigurationError(
                f"{kind}: a label must be a folder name of letters, digits and .+-_@ other than "
                f"{_RESERVED!r}, not {label!r}"
            )


METRICS = ("average_accuracy", "average_forgetting")
BENCH = "bench.toml"
# What a benchmark varies itself.
AXES = ("dataset", "method", "method.name", "stream.setting", *SEEDING, "part", "plugins")


@dataclass(frozen=True)
class Job:
    """One row of a benchmark: a method on a dataset in a setting, all seeds."""

    label: str
    dataset: str
    setting: str
    config: RunConfig
    folder: Path
    # Values to search first, by dotted key: their combinations modify ``config``.
    grid: Mapping[str, list[Any]] = field(default_factory=dict)
    # A trial of a search is a job of its own: its combination, empty elsewhere.
    tried: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.label} on {self.dataset}, {self.setting}"

    @property
    def names(self) -> tuple[str, str, str]:
        """Its label, dataset and setting."""
        return self.label, self.dataset, self.setting

    @property
    def trial(self) -> str | None:
        """Name of the combination being tried, which can be a folder name; None for a row."""
        short = [key.rpartition(".")[2] for key in self.tried]
        keys = short if len(set(short)) == len(short) else list(self.tried)
        pairs = zip(keys, map(short_text, self.tried.values()), strict=True)
        return ",".join(f"{key}={text}" for key, text in pairs) or None


def expand(
    bench: BenchConfig,
    *,
    out: Path = Path(),
    over: Mapping[str, Any] | None = None,
    search: bool = False,
) -> list[Job]:
    """Return every run of a benchmark, dataset by dataset, in ``out/dataset/setting/label``.

    over: values of ``RunConfig`` that override those of every run. search: whether a method without
    its own grid gets the built-in one.
    """
    jobs, over = [], over or {}
    for dataset, setting, method in product(bench.datasets, bench.settings, bench.variants):
        row = {
            "dataset": {"name": dataset.name, **dataset.parameters},
            "method": {"name": method.name, **method.parameters},
            "stream": {"setting": setting},
            "seeds": list(bench.seeds),
            "plugins": list(bench.plugins),
        }
        swept = {key: values[0] for key, values in method.sweep.items()}
        grid = method.grid or (grids().get(method.name, {}) if search else {})
        grid = {key: values for key, values in grid.items() if key not in swept}
        one_setting = method.settings.get(setting, {})
        try:
            given = (bench.common, dataset.run, method.run, one_setting, over, grid, swept)
            for key in chain.from_iterable(map(flat, given)):
                if key in AXES or key.startswith("dataset."):
                    rule = "must be set by the benchmark's own lists, not for single runs"
                    raise ConfigurationError(f"{key} {rule}")
            if "method" in bench.common:
                rule = "must be left out: give a method's parameters beside its name"
                raise ConfigurationError(f"common.method {rule}")
            for key in flat(over).keys() & swept.keys():  # the run would not match its name
                rule = f"must not be set to {flat(over)[key]!r} for every run"
                raise ConfigurationError(f"{key} is swept: it {rule}")
            preset = {} if method.preset is None else read_preset(method.preset, method.name)
            layers = (preset, row, dataset.run, method.run, one_setting, nested(swept), over)
            config = RunConfig.of(layered(RunConfig().to_dict(), bench.common, *layers))
            if prod(map(len, grid.values())) == 1:  # nothing to choose between
                config = with_values(config, {key: values[0] for key, values in grid.items()})
                grid = {}
        except ConfigurationError as error:
            raise ConfigurationError(f"{method.called}: {error}") from None
        folder = out / dataset.called / setting / method.called
        jobs.append(Job(method.called, dataset.called, setting, config, folder, grid))
    return jobs


def with_values(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return a configuration with the values of some dotted keys replaced."""
    return RunConfig.of(merged(config.to_dict(), nested(values)))


def trials(job: Job, options: SearchConfig) -> list[Job]:
    """Return a trial for every combination of a job's grid; the last key varies fastest."""
    seed = job.config.seeds[0] if options.seed is None else options.seed
    by_name: dict[str, Job] = {}
    for chosen in product(*job.grid.values()):
        tried = dict(zip(job.grid, chosen, strict=True))
        name = str(replace(job, tried=tried).trial)
        if name in by_name:
            rule = f"grid must give combinations that differ, not {name!r} twice"
            raise ConfigurationError(f"{job.label}: {rule}")
        try:
            config = with_values(job.config, {**tried, "seeds": [seed], "part": "validation"})
        except ConfigurationError as error:
            raise ConfigurationError(f"{job.label}: grid: {error}") from None
        folder = job.folder / SEARCH / name
        by_name[name] = replace(job, config=config, folder=folder, grid={}, tried=tried)
    return list(by_name.values())


def choose(
    job: Job, tried: Sequence[tuple[Job, dict[str, Any]]], options: SearchConfig
) -> tuple[Job, dict[str, Any]]:
    """Return the job with the values of its best trial, and the search as plain values.

    tried: the trials with their results. The best has the highest class-balanced AA, and is the
    first of equally good ones.
    """

    def means(result: Mapping[str, Any], metric: str) -> dict[str, float]:
        averaging = main_key(result)
        return {
            testing: float(values[averaging]["mean"]) for testing, values in result[metric].items()
        }

    best, _ = max(tried, key=lambda pair: means(pair[1], "average_accuracy")[options.testing])
    combinations = [
        {"name": trial.trial, "values": dict(trial.tried)}
        | {metric: means(result, metric) for metric in METRICS}
        for trial, result in tried
    ]
    search = {
        "part": "validation",
        "testing": options.testing,
        "seed": best.config.seeds[0],
        "combinations": combinations,
        "chosen": best.trial,
        "values": dict(best.tried),
    }
    return replace(job, config=with_values(job.config, best.tried), grid={}), search


def check_jobs(jobs: Iterable[Job]) -> None:
    """Raise on the first run that could not start, naming it."""
    for job in jobs:
        try:
            check(job.config)
            check_source(job.config.dataset.name, **job.config.dataset.parameters)
            # Whether tasks can be cut this way, as far as can be checked without the graph.
            stream = job.config.stream
            check_choice("edges", stream.edges, EDGES)
            check_integer("classes_per_task", stream.classes_per_task, least=1)
            check_way(**stream.model_dump(include={"by", "tasks", "blur", "setting", "batch"}))
        except EvergraphError as error:
            raise ConfigurationError(f"{job}: {error}") from None
