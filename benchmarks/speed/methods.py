"""What every method costs beside ``finetune``.

python benchmarks/speed/methods.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from statistics import mean
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.graphs import CASES, present
from benchmarks.measure import Options, Table, interleaved, ms, run, times

from evergraph.core.errors import ConfigurationError
from evergraph.experiments.build import build_learner, build_stream
from evergraph.experiments.config import RunConfig
from evergraph.graphs import Graph
from evergraph.memory import MemoryUsage
from evergraph.methods import BackboneLearner, methods
from evergraph.methods.base import WholeTaskLearner
from evergraph.nn import backbones
from evergraph.streams import GraphStream, Task

TINY = "synthetic-500"
# Rounds in which everybody has a turn, by graph.
ROUNDS = {"computers": 3, "coauthor-cs": 3}
QUICK = {TINY: 2}
# Epochs a task, by backbone: enough for a mean, few enough for every method to have its turns.
# pdgnn takes small batches, so that one of its epochs is many steps.
EPOCHS = {"gcn": 5}
FEW_EPOCHS = 2  # on backbones whose graph is read once

Line = tuple[str, str]
"""A method and the backbone it learns with."""


def lines() -> list[Line]:
    """Return every method on gcn, unless it refuses, and those at home elsewhere there as well,
    beside ``finetune``.

    Methods that learn a task as a whole have no epochs to take apart.
    """
    trained = [n for n in methods.names() if not issubclass(methods.resolve(n), WholeTaskLearner)]
    found = [(name, "gcn") for name in trained if _accepts(name, "gcn")]
    at_home = [(name, _home(name)) for name in trained]
    elsewhere = [line for line in at_home if line[1] != "gcn"]
    yardsticks = [("finetune", backbone) for _, backbone in elsewhere]
    return list(dict.fromkeys([*found, *yardsticks, *elsewhere]))


def _home(method: str) -> str:
    """Return a method's own backbone; one that is the best of several is no single training."""
    name = methods.resolve(method).default_backbone
    return name if backbones.resolve(name).networks_trained == 1 else "pdgnn"


def _accepts(method: str, backbone: str) -> bool:
    try:
        methods.resolve(method).check_backbone(backbones.make(backbone))
    except ConfigurationError:
        return False
    return True


def recipe(method: str, backbone: str, epochs: int, **stream: object) -> RunConfig:
    """Return a method and a backbone with their defaults, for a few epochs a task on the CPU."""
    return RunConfig.of(
        {
            "method": method,
            "backbone": backbone,
            "training": {"epochs": epochs},
            "stream": stream,
            "device": "cpu",
        }
    )


def opened(config: RunConfig, graph: Graph) -> tuple[BackboneLearner, GraphStream]:
    """Return a new learner and a new stream for it."""
    learner = build_learner(config, seed=0)
    assert isinstance(learner, BackboneLearner)
    return learner, build_stream(config, graph, seed=0)


@dataclass(frozen=True)
class Seconds:
    """What one task took.

    Attributes:
        before: opening it and ``begin_task``: subgraphs, matrices, embeddings, old answers.
        epochs: each epoch.
        after: ``end_task``: importance, sampling, what is kept of the graph.
    """

    before: float
    epochs: tuple[float, ...]
    after: float

    def best(self, other: Seconds) -> Seconds:
        """Return the less of each, every epoch by itself: the work is the same in every round."""
        epochs = zip(self.epochs, other.epochs, strict=True)
        return Seconds(
            min(self.before, other.before),
            tuple(min(pair) for pair in epochs),
            min(self.after, other.after),
        )


Turn = tuple[list[Seconds], MemoryUsage]
"""A stream's tasks, and what is kept in the end."""


def fit(learner: BackboneLearner, stream: GraphStream, index: int) -> Seconds:
    """Learn one task under the clock."""
    begin, stamps = learner.begin_task, [time.perf_counter()]

    def begin_task(task: Task) -> int:
        count = begin(task)
        stamps.append(time.perf_counter())
        return count

    learner.trainer.on_epoch = lambda task, epoch: stamps.append(time.perf_counter())
    task = stream.open(index, cumulative=learner.cumulative)
    with mock.patch.object(learner, "begin_task", begin_task):
        learner.fit_task(task)
    stamps.append(time.perf_counter())
    before, *epochs, after = (end - start for start, end in pairwise(stamps))
    assert len(epochs) == learner.trainer.epochs, f"{learner.name} does not learn by epochs"
    return Seconds(before, tuple(epochs), after)


def learn(line: Line, graph: Graph, epochs: int) -> Turn:
    """Learn a stream; return each task's seconds and what is kept in the end."""
    learner, stream = opened(recipe(*line, epochs), graph)
    return [fit(learner, stream, index) for index in range(len(stream))], learner.usage


@dataclass(frozen=True)
class Cost:
    """What a method costs on one graph: means of a task, in seconds.

    Attributes:
        tasks: how many there are.
        before, after: what is done once a task.
        train: all epochs of a task.
        epoch: one of them.
        whole: a task with as many epochs as the backbone's recipe has.
        usage: what is kept after the last task.
    """

    tasks: int
    before: float
    after: float
    train: float
    epoch: float
    whole: float
    usage: MemoryUsage


def cost(line: Line, turns: Sequence[Turn]) -> Cost:
    """Return what a method costs, by the best round of everything."""
    rounds = zip(*(tasks for tasks, _ in turns), strict=True)
    best = [reduce(Seconds.best, task) for task in rounds]
    before, after = mean(task.before for task in best), mean(task.after for task in best)
    train, epoch = mean(sum(task.epochs) for task in best), mean(e for t in best for e in t.epochs)
    whole = before + backbones.resolve(line[1]).recipe.epochs * epoch + after
    return Cost(len(best), before, after, train, epoch, whole, turns[-1][1])


def measure(graph: Graph, *, rounds: int) -> dict[Line, Cost]:
    """Let all methods take turns, a stream a turn."""
    taken: dict[Line, list[Turn]] = {line: [] for line in lines()}

    def turn(line: Line) -> Callable[[], None]:
        return lambda: taken[line].append(learn(line, graph, EPOCHS.get(line[1], FEW_EPOCHS)))

    interleaved({str(line): turn(line) for line in taken}, rounds=rounds, limit=120.0)
    return {line: cost(line, turns) for line, turns in taken.items()}


def method_table(name: str, costs: Mapping[Line, Cost]) -> Table:
    """Return what each method costs on one graph."""
    rows = []
    for (method, backbone), its in costs.items():
        plain = costs["finetune", backbone]
        in_all = its.before + its.train + its.after
        rows.append(
            [
                f"{method}, {backbone}",
                ms(its.epoch),
                times(its.epoch / plain.epoch),
                *(f"{seconds:.3f}" for seconds in (its.before, its.after, its.train, in_all)),
                times(its.whole / plain.whole),
                f"{its.usage.floats:,}",
                f"{its.usage.bytes:,}",
            ]
        )
    count = costs["finetune", "gcn"].tasks
    return Table(
        f"{name}: class-IL, {count} tasks (mean of a task; best round of each, methods take turns)",
        (
            "method, backbone",
            "per epoch ms",
            "x finetune per epoch",
            "once before a task s",
            "once after a task s",
            "task s, epochs alone",
            "task s, in all",
            "x finetune, recipe's epochs",
            "kept floats",
            "kept bytes",
        ),
        rows,
    )


def notes_on_methods() -> tuple[str, ...]:
    """Return what must be said about the methods' tables."""
    ran = " and ".join(f"{epochs} with {backbone}" for backbone, epochs in EPOCHS.items())
    whole = " and ".join(f"{backbones.resolve(b).recipe.epochs} with {b}" for b in EPOCHS)
    return (
        f"Epochs a task: {ran}; seconds of a task are for so many. What is done once a task does "
        "not grow with them and stands apart; `x finetune, recipe's epochs` is reckoned from both "
        f"for {whole}.",
        "x finetune: over finetune on the same backbone. Ratios are inside one run, in which all "
        "take turns; milliseconds are of that machine, that day.",
        "before: opening the task, its matrices or embeddings, what is stored laid beside it, old "
        "answers (lwf). after: importance (ewc, mas, twp), sampling (all that store nodes or "
        "embeddings), curvature (sem).",
        "joint sees the nodes of all tasks so far at every task, by nature: its ratio is that of "
        "the data, and grows with the tasks. It keeps nothing but needs all earlier graphs.",
        "In the first task nothing is stored or held: means are over all tasks, this one too.",
        "gcn: 2 layers, 256 wide, whole graph a step. pdgnn: f_topo once a task (in before), "
        "batches of 512.",
        "kept: after the last task, besides the model. floats as the paper counts: features with "
        "their zeros, embeddings, gradients, importance. bytes: of everything, features as they "
        "are held, so that few bytes can stand for many floats where they are CSR.",
    )


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    wanted = QUICK if options.quick else ROUNDS
    cases, reasons = present(wanted)
    learn(("finetune", "gcn"), CASES[TINY].load(), 1)  # torch's imports on first use come first
    found = [
        method_table(case.name, measure(case.load(), rounds=wanted[case.name])) for case in cases
    ]
    if found:
        found[-1] = replace(found[-1], notes=(*notes_on_methods(), *reasons))
    return found


if __name__ == "__main__":
    run("methods", "Methods and backbones", tables)
