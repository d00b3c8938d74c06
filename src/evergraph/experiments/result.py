"""Result of a run, with facts about its data, versions and machine."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from evergraph.core.component import Shown
from evergraph.core.errors import ConfigurationError, check_choice
from evergraph.core.packages import installed, installed_version, require
from evergraph.core.resources import choose_device, cpu_count
from evergraph.core.targets import Target, target_of
from evergraph.evaluation import (
    MEASURES,
    AccuracyMatrix,
    anytime_accuracy,
    average_accuracy,
    average_accuracy_curve,
    average_forgetting,
)
from evergraph.evaluation.evaluator import AccuracyRows, matrix_of, spread
from evergraph.experiments.config import RunConfig
from evergraph.experiments.presets import read_protocol
from evergraph.experiments.protocol import TaskReport
from evergraph.graphs import Graph, homophily
from evergraph.memory import MemoryUsage
from evergraph.streams import GraphStream
from evergraph.streams.arrival import BY_MASKS
from evergraph.streams.task import TESTINGS
from evergraph.training import Learner

if TYPE_CHECKING:
    from pandas import DataFrame

REQUIRED_PACKAGES = ("evergraph", "torch", "numpy", "scipy")
OPTIONAL_PACKAGES = ("torch-geometric",)
COLUMNS = [
    "dataset",
    "method",
    "setting",
    "seed",
    "testing",
    "average",
    "after",
    "task",
    "accuracy",
]
Metric = Callable[[AccuracyMatrix], float]
LINE_STYLES = {"local": "-", "global": "--"}
PHASES = ("embed", "train", "evaluate")
USAGE = ("floats", "bytes", "samples", "gradients", "importance", "models", "edges", "statistics")


def describe(graph: Graph, stream: GraphStream, config: RunConfig) -> dict[str, Any]:
    """Return the facts of a graph and its stream as plain values."""
    facts: dict[str, Any] = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "homophily": homophily(graph),
        "tasks": len(stream.tasks),
        **({"steps": len(stream)} if len(stream) > len(stream.tasks) else {}),
        "task_classes": [list(classes) for classes in stream.tasks],
    }
    if graph.targets is not None:
        facts["targets"] = {
            "kind": graph.targets.kind,
            "names": list(graph.targets.names),
            "known": float(graph.targets.known.float().mean()),
        }
    if graph.masks is not None and config.stream.split == BY_MASKS:
        seed = config.stream.split_seed
        facts["split"] = graph.masks.shares(config.seeds[0] if seed == "run" else seed)
    return facts


def machine(device: str) -> dict[str, Any]:
    """Return the hardware that a run on this device uses, as far as it is known."""
    facts: dict[str, Any] = {"cpus": cpu_count(), "threads": torch.get_num_threads()}
    with suppress(ImportError):
        import psutil

        facts["memory"] = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    if choose_device(device).type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def versions() -> dict[str, str]:
    """Return the versions of installed packages that a result depends on."""
    versions = {"python": platform.python_version()}
    for name in REQUIRED_PACKAGES:
        versions[name] = installed_version(name) or "unknown"
    for name in OPTIONAL_PACKAGES:
        if version := installed_version(name):
            versions[name] = version
    return versions


@dataclass(frozen=True)
class SeedResult:
    """One repeat: the results of its tests, and its costs.

    Attributes:
        seed: the repeat's seed.
        reports: one for each test, by default after each task.
        usage: size of what is kept between tasks, at the end.
        coverage_ratio: of the memory at the end, None without one.
        peak_rss_bytes: the largest resident size of the process that learned it; 0 if unknown.
        recomputed: embeddings of old nodes that were recomputed, and their total; None without
            refresh.
    """

    seed: int
    reports: list[TaskReport]
    usage: MemoryUsage
    coverage_ratio: float | None = None
    peak_rss_bytes: int = 0
    recomputed: tuple[int, int] | None = None

    @property
    def rows(self) -> list[AccuracyRows]:
        """The rows of its accuracy matrices, one for each test."""
        return [report.rows for report in self.reports]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase."""
        return {phase: sum(report.seconds[phase] for report in self.reports) for phase in PHASES}

    @property
    def tested_after(self) -> list[int]:
        """Number of tasks, or steps if tasks arrive in batches, learned before each test."""
        return [report.index + 1 for report in self.reports]

    def measure(self, testing: str, name: str) -> float | None:
        """Return the mean of a measure over the tests where it is defined, None if nowhere."""
        values = [report.measures[testing].get(name) for report in self.reports]
        defined = [value for value in values if value is not None]
        return float(np.mean(defined)) if defined else None

    @property
    def averages(self) -> list[str]:
        """Measures of the rows, the main one first."""
        return [*next(iter(self.rows[0].values()))]

    def matrix(self, testing: str, average: str) -> AccuracyMatrix:
        """Return the accuracy matrix for one kind of testing and averaging.  [tests, tasks]"""
        return matrix_of([row[testing][average] for row in self.rows])


@dataclass(frozen=True, repr=False)
class RunResult(Shown):
    """All repeats of an experiment.

    Attributes:
        config: the whole resolved configuration.
        seeds: one result per repeat.
        total_seconds: of the whole run, including loading if one process did all of it.
        peak_rss_bytes: the largest resident size of any process of the run; None if unknown.
        dataset: facts of the graph.
        versions: of evergraph, torch and other packages.
        machine: facts of the hardware.
        cumulative: whether the method sees all earlier tasks again, and so keeps all data.
        learner: the trained learner of the last seed, if it was kept: see ``run``.
    """

    config: RunConfig
    seeds: list[SeedResult]
    total_seconds: float
    peak_rss_bytes: int | None
    dataset: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, Any]
    cumulative: bool = False
    learner: Learner | None = field(default=None, compare=False)

    @property
    def target(self) -> Target:
        """What its nodes have to be predicted, with its measures: a class, labels or numbers."""
        return target_of(self.dataset.get("targets", {}).get("kind", "class"))

    @property
    def headline(self) -> dict[str, str]:
        """The ``testing`` and ``averaging`` of its protocol; without one, local and the main one.

        Targets other than classes have no protocol, and their own averaging.
        """
        main = {"testing": "local", "averaging": self.target.main}
        if self.config.protocol is None:
            return main
        headline = read_protocol(self.config.protocol).headline
        if headline["averaging"] in self.target.rows:
            return headline
        return main | {"testing": headline["testing"]}

    def _repr_facts(self) -> dict[str, object]:
        measured = {} if self.target.main == "balanced" else {"measured": self.target.measure}
        return {
            "method": self.config.method.name,
            "dataset": self.config.dataset.name,
            "setting": self.config.stream.setting,
            "seeds": len(self.seeds),
            **({} if self.config.protocol is None else {"protocol": self.config.protocol}),
            **measured,
            "average_accuracy": round(self.average_accuracy(), 4),
            "average_forgetting": round(self.average_forgetting(), 4),
        }

    def _repr_table(self) -> dict[str, object]:
        accuracies = {
            f"{t}, {a}": f"AA {100 * self.average_accuracy(t, a):.1f} %, "
            f"AF {100 * self.average_forgetting(t, a):.1f} %, "
            f"anytime {100 * self.anytime_accuracy(t, a):.1f} %"
            for t in TESTINGS
            for a in self.target.rows
        }
        facts = {k: v for k, v in self._repr_facts().items() if not k.startswith("average_")}
        return facts | accuracies | {"seconds": round(self.total_seconds, 1)}

    def average_accuracy(self, testing: str | None = None, average: str | None = None) -> float:
        """Return AA after the last task, the mean over seeds.  0..1

        testing: ``local`` or ``global``. average: ``balanced`` or ``plain``; for several labels
        ``micro_f1`` or ``macro_f1``; for numbers ``r2``. By default, those of the ``headline``.
        """
        return self._mean(average_accuracy, testing, average)

    def average_forgetting(self, testing: str | None = None, average: str | None = None) -> float:
        """Return AF after the last task, the mean over seeds; negative means forgotten.

        testing, average: as in ``average_accuracy``.
        """
        return self._mean(average_forgetting, testing, average)

    def anytime_accuracy(self, testing: str = "local", average: str | None = None) -> float:
        """Return the mean of AA over all tests and seeds; average: as above.  0..1"""
        return self._mean(anytime_accuracy, testing, average or self.target.main)

    def _mean(self, metric: Metric, testing: str | None, average: str | None) -> float:
        main = self.headline
        testing = testing or main["testing"]
        average = average or main["averaging"]
        return float(np.mean([metric(seed.matrix(testing, average)) for seed in self.seeds]))

    def to_frame(self) -> DataFrame:
        """Return every accuracy as a tidy pandas ``DataFrame``, one observation per row.

        Columns: ``dataset``, ``method``, ``setting``; ``seed``; ``testing`` (local or global) and
        ``average`` (balanced or plain, or those of other targets); ``after``, the last task, or
        step if tasks arrive in batches, learned by then, and ``task``, the task that was tested,
        both from 0; ``accuracy``, 0..1, or its counterpart for other targets.
        AA of every seed is ``accuracy`` at the largest ``after``, averaged over ``task``:

            frame[frame.after == frame.after.max()].groupby(["testing", "average", "seed"])
        """
        if not installed("pandas"):
            raise ConfigurationError(
                "RunResult.to_frame() needs the package pandas, which is missing: "
                "pip install pandas"
            )
        from pandas import DataFrame

        config = self.config
        names = (config.dataset.name, config.method.name, config.stream.setting)
        rows = [
            (*names, seed.seed, testing, average, count - 1, task, accuracy)
            for seed in self.seeds
            for testing in TESTINGS
            for average in self.target.rows
            for count, row in zip(seed.tested_after, seed.rows, strict=True)
            for task, accuracy in enumerate(row[testing][average])
        ]
        return DataFrame(rows, columns=COLUMNS)

    def plot(self, *, average: str | None = None, axes: Any = None) -> Any:
        """Draw the learning curve: AA after each task, local and global; return matplotlib's axes.

        It is the mean over seeds, with a band of one standard deviation.

        average: as in ``average_accuracy``. axes: to draw into, for several results in one figure;
        new ones by default.
        """
        average = average or self.target.main
        check_choice("average", average, self.target.rows)
        if axes is None:
            require("matplotlib", extra="report", why="RunResult.plot()")
            from matplotlib import pyplot

            axes = pyplot.subplots()[1]
        config, tested_after = self.config, self.seeds[0].tested_after
        colour = axes.plot([], [])[0].get_color()
        for testing, line in LINE_STYLES.items():
            matrices = (seed.matrix(testing, average) for seed in self.seeds)
            curves = 100 * np.array([average_accuracy_curve(matrix) for matrix in matrices])
            mean = curves.mean(axis=0)  # of curves, [seeds, tests]
            label = f"{config.method.name}, {testing}"
            style = {"color": colour, "linestyle": line, "marker": "o", "markersize": 4}
            axes.plot(tested_after, mean, label=label, **style)
            if len(curves) > 1:
                band = curves.std(axis=0, ddof=1)
                low, high = mean - band, mean + band
                axes.fill_between(tested_after, low, high, color=colour, alpha=0.15)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend()
        learned = "batches" if "steps" in self.dataset else "tasks"
        axes.set(xlabel=f"{learned} learned", ylabel=f"average {self.target.measure} (%)")
        axes.set_title(f"{config.dataset.name}, {config.stream.setting}")
        return axes

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; accuracies are fractions."""
        ratios = [s.coverage_ratio for s in self.seeds if s.coverage_ratio is not None]
        seconds = {phase: sum(s.seconds[phase] for s in self.seeds) for phase in PHASES}
        refreshed = [s.recomputed for s in self.seeds if s.recomputed is not None]
        refresh = {"recomputed": sum(r[0] for r in refreshed), "of": sum(r[1] for r in refreshed)}
        averages = self.target.rows
        matrices: list[dict[str, Any]] = []
        for seed in self.seeds:
            rows = {t: {a: [row[t][a] for row in seed.rows] for a in averages} for t in TESTINGS}
            matrices.append({"seed": seed.seed} | rows)

        def curve(testing: str, average: str) -> list[float]:
            curves = [average_accuracy_curve(s.matrix(testing, average)) for s in self.seeds]
            mean: list[float] = np.mean(curves, axis=0).tolist()
            return mean

        measures: dict[str, dict[str, Any]] = {testing: {} for testing in TESTINGS}
        for testing, name in product(TESTINGS, (*MEASURES, *self.target.beside)):
            values = [s.measure(testing, name) for s in self.seeds]
            defined = [value for value in values if value is not None]
            measures[testing][name] = spread(defined) if defined else None
        return {
            "metric": {"name": self.target.measure, "key": self.target.main},
            "protocol": self.config.protocol,
            "headline": self.headline,
            "average_accuracy": self._summary(average_accuracy),
            "average_forgetting": self._summary(average_forgetting),
            "anytime_accuracy": self._summary(anytime_accuracy),
            "average_accuracy_curve": self._by_testing_and_average(curve),
            "tested_after": self.seeds[0].tested_after,
            "measures": measures,
            "accuracy_matrix": matrices,
            "coverage_ratio": float(np.mean(ratios)) if ratios else None,
            "refresh": refresh if refreshed else None,
            "cumulative": self.cumulative,
            "memory": {name: max(getattr(s.usage, name) for s in self.seeds) for name in USAGE},
            "seconds": seconds | {"total": self.total_seconds},
            "peak_rss_bytes": self.peak_rss_bytes,
            "dataset": self.dataset,
            "config": self.config.to_dict(),
            "versions": self.versions,
            "machine": self.machine,
        }

    def _summary(self, metric: Metric) -> dict[str, Any]:
        return self._by_testing_and_average(
            lambda t, a: spread([metric(s.matrix(t, a)) for s in self.seeds])
        )

    def _by_testing_and_average(self, make: Callable[[str, str], Any]) -> dict[str, Any]:
        averages = self.target.rows
        return {t: {a: make(t, a) for a in averages} for t in TESTINGS}
