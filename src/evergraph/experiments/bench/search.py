"""Choosing hyper-parameters as CGLB does: try every combination on validation nodes, keep the best.

Each (method, dataset, setting) is searched for itself, with one seed; test nodes are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from evergraph.core.errors import ConfigurationError
from evergraph.experiments.bench.config import SearchConfig
from evergraph.experiments.bench.jobs import Job, laid_over
from evergraph.experiments.bench.short_text import short_text
from evergraph.experiments.spread import main_key
from evergraph.experiments.store import CHOICE, SEARCH, write_whole


@dataclass(frozen=True)
class Trial:
    """One combination: its values by dotted key, and the run that tries it."""

    name: str
    values: dict[str, Any]
    job: Job


@dataclass(frozen=True)
class Choice:
    """A finished search.

    Attributes:
        job: what was searched for, with the best combination in its configuration.
        chosen: the best trial.
        trials: every trial with what its ``result.json`` says.
        options: how the best was told.
    """

    job: Job
    chosen: Trial
    trials: list[tuple[Trial, dict[str, Any]]]
    options: SearchConfig

    def to_dict(self) -> dict[str, Any]:
        """Return the whole search as plain values; accuracies are class-balanced fractions."""
        return {
            "part": "validation",
            "testing": self.options.testing,
            "seed": self.chosen.job.config.seeds[0],
            "combinations": [_summary(trial, result) for trial, result in self.trials],
            "chosen": self.chosen.name,
            "values": self.chosen.values,
        }

    def keep(self) -> None:
        """Write the search beside the results it led to."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        write_whole(self.job.folder / CHOICE, text.encode())


def trials(job: Job, options: SearchConfig) -> list[Trial]:
    """Return a trial for every combination of a job's grid, the last key turning fastest."""
    seed = job.config.seeds[0] if options.seed is None else options.seed
    plain = {"seeds": [seed], "part": "validation"}
    combinations = [
        dict(zip(job.grid, values, strict=True)) for values in product(*job.grid.values())
    ]
    made = [_trial(job, values, plain) for values in combinations]
    names = [trial.name for trial in made]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"{job.label}: grid must lead to combinations that differ, not to {name!r} twice"
            )
    return made


def choose(
    job: Job, tried: Sequence[tuple[Trial, dict[str, Any]]], options: SearchConfig
) -> Choice:
    """Return the trial with the highest class-balanced AA, the first of equal ones."""
    best, _ = max(tried, key=lambda pair: _score(pair[1], options.testing))
    config = laid_over(job.config, best.values)
    return Choice(replace(job, config=config, grid={}), best, list(tried), options)


def combination_name(values: Mapping[str, Any]) -> str:
    """Return a short name for a combination that can be a folder's.

    >>> combination_name({"method.strength": 1e4, "memory.sampler": "mean-feature"})
    'strength=10000,sampler=mean-feature'
    """
    last = [key.rpartition(".")[2] for key in values]
    keys = last if len(set(last)) == len(last) else list(values)
    pairs = zip(keys, values.values(), strict=True)
    return ",".join(f"{key}={short_text(value)}" for key, value in pairs)


def _trial(job: Job, values: dict[str, Any], plain: Mapping[str, Any]) -> Trial:
    name = combination_name(values)
    try:
        config = laid_over(job.config, {**values, **plain})
    except ConfigurationError as error:
        raise ConfigurationError(f"{job.label}: grid: {error}") from None
    folder = job.folder / SEARCH / name
    return Trial(name, values, replace(job, config=config, folder=folder, grid={}))


def _score(result: dict[str, Any], testing: str) -> float:
    return float(result["average_accuracy"][testing][main_key(result)]["mean"])


def _summary(trial: Trial, result: dict[str, Any]) -> dict[str, Any]:
    metrics = ("average_accuracy", "average_forgetting")
    found = {
        metric: {way: value[main_key(result)]["mean"] for way, value in result[metric].items()}
        for metric in metrics
    }
    return {"name": trial.name, "values": trial.values, **found}
