"""The repeats of one configuration, measured in one way: what a comparison starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError
from evergraph.experiments.spread import main_key
from evergraph.reports.runs import Finished
from evergraph.streams.splits import SHARES

TESTINGS = ("local", "global")
LEAST_RESOLUTION = 0.001  # 0.1 points, the last digit that is told
Way = tuple[str, str]
"""A way of testing and one of averaging, such as ``("local", "balanced")``."""
Outcome = tuple[float, tuple[float, ...], int | None]
"""A score, the results on each task behind it, and the split where every seed has its own."""


@dataclass(frozen=True)
class Trials:
    """What the repeats of one configuration came to.

    Attributes:
        name: what it is called.
        dataset, setting: as reports call them.
        metric: what answers were measured by, such as ``accuracy``.
        way: how they were tested and averaged.
        config: the configuration as plain values.
        scores: AA after the last task, by seed; fractions.
        tasks: the last test's result on each task, by seed; empty where it was not kept.
        facts: of the graph: how many nodes, classes and tasks, as far as they are known.
    """

    name: str
    dataset: str
    setting: str
    metric: str
    way: Way
    config: Mapping[str, Any]
    scores: Mapping[int, float]
    tasks: Mapping[int, list[float]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """AA, the mean over all repeats."""
        return sum(self.scores.values()) / len(self.scores)

    @property
    def resolution(self) -> float:
        """How fine scores are told apart: by a test node, if known, but no finer than 0.001."""
        nodes = float(self.facts.get("nodes", 0)) * self.config["stream"].get("split", SHARES)[2]
        return max(LEAST_RESOLUTION, 1 / nodes) if nodes else LEAST_RESOLUTION

    def outcome(self, seed: int) -> Outcome:
        """Return what a repeat came to; equal ones are no two observations, but one repeated."""
        follows = self.config["stream"].get("split_seed") == "run"
        return self.scores[seed], tuple(self.tasks.get(seed, ())), seed if follows else None

    @property
    def where(self) -> str:
        """The dataset and the setting, and how it was tested where that is not as usual."""
        testing, averaging = self.way
        told = [self.dataset, self.setting]
        told += ["tested globally"] if testing == "global" else []
        told += ["plain accuracy"] if averaging == "plain" else []
        return ", ".join(told)


def way_of(
    result: Mapping[str, Any], testing: str | None = None, averaging: str | None = None
) -> Way:
    """Return how a stored result is read: as asked for, else as its protocol reports.

    >>> way_of({}), way_of({"headline": {"testing": "global", "averaging": "plain"}}, "local")
    (('local', 'balanced'), ('local', 'plain'))
    """
    told = result.get("headline") or {}
    return (
        testing or told.get("testing", TESTINGS[0]),
        averaging or told.get("averaging", main_key(result)),
    )


def trials_of(run: Finished, way: Way, *, name: str | None = None) -> Trials:
    """Return the repeats of a finished run, measured in one way."""
    testing, averaging = way
    check_choice("testing", testing, TESTINGS)
    seeds = run.result["accuracy_matrix"]
    measured = [*seeds[0][testing]]
    if averaging not in measured:
        raise ConfigurationError(
            f"averaging must be one of {', '.join(measured)} for {run.method} on {run.dataset}, "
            f"not {averaging!r}"
        )
    last = {int(seed["seed"]): [float(x) for x in seed[testing][averaging][-1]] for seed in seeds}
    return Trials(
        name=name or run.method,
        dataset=_dataset(run),
        setting=run.setting,
        metric=run.metric,
        way=way,
        config=run.result["config"],
        scores={seed: sum(row) / len(row) for seed, row in last.items()},
        tasks=last,
        facts=run.result.get("dataset", {}),
    )


def _dataset(run: Finished) -> str:
    """Return a dataset's name, with its parameters where it has no label that tells it apart."""
    parameters = {k: v for k, v in run.result["config"]["dataset"].items() if k != "name"}
    if run.labelled or not parameters:
        return run.dataset
    return f"{run.dataset} ({', '.join(f'{key}={value}' for key, value in parameters.items())})"
