"""From a benchmark to the runs it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError
from evergraph.experiments.bench.config import BenchConfig, DatasetEntry, MethodEntry, Setting
from evergraph.experiments.config import RunConfig, merged
from evergraph.experiments.dotted import flat, nested
from evergraph.experiments.grids import shipped_grid
from evergraph.experiments.layers import layered
from evergraph.experiments.presets import read_preset


@dataclass(frozen=True)
class Job:
    """One row of a benchmark: a method on a dataset in a setting, all seeds.

    Attributes:
        label, dataset, setting: what the row is called.
        config: what is run; with a grid, what the combinations are laid over.
        folder: where its results lie, in the layout of ``ResultStore``.
        grid: values to search first, by dotted key; empty for no search.
    """

    label: str
    dataset: str
    setting: str
    config: RunConfig
    folder: Path
    grid: Mapping[str, list[Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.label} on {self.dataset}, {self.setting}"


def expand(
    bench: BenchConfig,
    *,
    out: Path = Path(),
    over: Mapping[str, Any] | None = None,
    search: bool = False,
) -> list[Job]:
    """Return every run of a benchmark, dataset by dataset.

    Args:
        out: the folder below which results lie, as ``out/dataset/setting/label``.
        over: values of ``RunConfig`` laid over every run.
        search: whether a method without a grid of its own gets the shipped one.

    >>> bench = BenchConfig.of({"datasets": ["wordnet"], "methods": ["tem"], "seeds": [0, 1]})
    >>> [(str(job), job.folder.as_posix()) for job in expand(bench)]
    [('tem on wordnet, class-il', 'wordnet/class-il/tem')]
    """
    axes = product(bench.datasets, bench.settings, bench.variants)
    return [
        _job(bench, dataset, setting, method, out=out, over=over or {}, search=search)
        for dataset, setting, method in axes
    ]


def laid_over(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return a configuration with other values at some dotted keys."""
    return RunConfig.of(merged(config.to_dict(), nested(values)))


def _job(
    bench: BenchConfig,
    dataset: DatasetEntry,
    setting: Setting,
    method: MethodEntry,
    *,
    out: Path,
    over: Mapping[str, Any],
    search: bool,
) -> Job:
    own = {
        "dataset": {"name": dataset.name, **dataset.parameters},
        "method": {"name": method.name, **method.parameters},
        "stream": {"setting": setting},
        "seeds": list(bench.seeds),
        "plugins": list(bench.plugins),
    }
    swept = {key: values[0] for key, values in method.sweep.items()}
    grid = method.grid or (shipped_grid(method.name) if search else {})
    grid = {key: values for key, values in grid.items() if key not in swept}
    try:
        _check_common(bench.common)
        for values in (
            dataset.run,
            method.run,
            method.settings.get(setting, {}),
            over,
            grid,
            swept,
        ):
            _check_axes(values)
        _check_swept(over, swept)
        layers = (dataset.run, method.run, method.settings.get(setting, {}), nested(swept), over)
        preset = {} if method.preset is None else read_preset(method.preset, method.name)
        config = _layered(bench.common, preset, own, *layers)
        if prod(map(len, grid.values())) == 1:  # nothing to choose between
            config, grid = laid_over(config, {key: value[0] for key, value in grid.items()}), {}
    except ConfigurationError as error:
        raise ConfigurationError(f"{method.called}: {error}") from None
    folder = out / dataset.called / setting / method.called
    return Job(method.called, dataset.called, setting, config, folder, grid)


def _layered(*layers: Mapping[str, Any]) -> RunConfig:
    return RunConfig.of(layered(RunConfig().to_dict(), *layers))


def _check_axes(values: Mapping[str, Any]) -> None:
    """Raise if values touch what the benchmark's lists are for."""
    for key in flat(values):
        if key in _AXES or key.startswith("dataset."):
            raise ConfigurationError(
                f"{key} must be left to the benchmark's own lists, not be set for some of its runs"
            )


def _check_swept(over: Mapping[str, Any], swept: Mapping[str, Any]) -> None:
    """Raise if a run would not be what its name says."""
    for key in flat(over):
        if key in swept:
            raise ConfigurationError(
                f"{key} must be left to the sweep, not be set to {flat(over)[key]!r} for every run"
            )


def _check_common(values: Mapping[str, Any]) -> None:
    _check_axes(values)
    if "method" in values:
        raise ConfigurationError(
            "common.method must be left out: a method's parameters stand beside its name"
        )


_AXES = ("dataset", "method", "method.name", "stream.setting", "seeds", "part", "plugins")
