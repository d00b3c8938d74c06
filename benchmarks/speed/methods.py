"""What every method costs beside ``finetune``, and what a GNN's epoch costs beside PyG's layers.

python benchmarks/speed/methods.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.graphs import CASES, layout, present
from benchmarks.measure import (
    Options,
    T,
    Table,
    extra_peak,
    in_own_process,
    interleaved,
    megabytes,
    ms,
    run,
    times,
)

from evergraph.core.device import denormals_flushed, peak_rss_bytes
from evergraph.core.errors import ConfigurationError
from evergraph.experiments.build import build_learner, build_stream
from evergraph.experiments.config import RunConfig
from evergraph.graphs import Graph, normalised
from evergraph.graphs.csr import densify, repeat
from evergraph.memory import MemoryUsage
from evergraph.methods import BackboneLearner, methods
from evergraph.methods.backbone_learner import WholeTaskLearner
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
LOOP_EPOCHS = {"gcn": 3, "gat": 2}
REMEMBERED = "gat"  # the backbone whose messages take memory
AGREE = 1e-4

Line = tuple[str, str]
"""A method and the backbone it learns with."""
Gauged = tuple[str, str, str]
"""A graph, and what is measured on it: a method and a backbone, or a backbone and a way."""


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
    return name if backbones.resolve(name).rivals == 1 else "pdgnn"


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


def peak(name: str, method: str, backbone: str) -> tuple[int, int]:
    """Return by how many bytes the process rises while it learns a stream, and its peak then."""
    line = method, backbone
    learn(line, CASES[TINY].load(), 1)  # thread pools and libraries come first
    graph = CASES[name].load()
    risen = extra_peak(lambda: learn(line, graph, 1))
    return risen, peak_rss_bytes()


@dataclass(frozen=True)
class Loop:
    """A way to train a backbone on a whole graph.

    Attributes:
        train: trains for some epochs.
        scores: returns the class scores of training nodes.
        layers: its layers.
    """

    train: Callable[[], None]
    scores: Callable[[], Tensor]
    layers: Sequence[Any]


def ours(graph: Graph, backbone: str, epochs: int) -> Loop:
    """Return the library's training of ``finetune``, the whole graph being one task."""
    learner, task = _one_task(graph, backbone, epochs)
    learner.begin_task(task)  # so that there are weights
    layers: Any = learner.backbone.convolutions
    return Loop(
        lambda: learner.fit_task(task), lambda: learner.logits(task.graph, task.train), list(layers)
    )


def ours_dense(graph: Graph, backbone: str, epochs: int) -> Loop:
    """Return the same on dense features."""
    return ours(replace(graph, features=densify(graph.features)), backbone, epochs)


def pyg(graph: Graph, backbone: str, epochs: int) -> Loop:
    """Return a bare loop over PyG's layers: same widths, same Adam, same training nodes."""
    from torch_geometric.nn import GATConv, GCNConv

    learner, task = _one_task(graph, backbone, epochs)
    model: Any = learner.backbone
    wide, classes = model.hidden, task.label_space.num_classes
    features = densify(task.graph.features)
    if backbone == "gcn":
        adjacency = normalised(task.graph)
        layers = [
            GCNConv(features.shape[1], wide, normalize=False),
            GCNConv(wide, classes, normalize=False),
        ]
    else:
        adjacency = edge_index(task.graph)
        layers = [
            GATConv(
                features.shape[1], wide // model.heads, heads=model.heads, add_self_loops=False
            ),
            GATConv(wide, classes, add_self_loops=False),
        ]

    def scores() -> Tensor:
        state = layers[0](features, adjacency).relu_()
        found: Tensor = layers[1](state, adjacency)[task.train]
        return found

    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    lr, decay = learner.trainer.lr, learner.trainer.weight_decay

    @denormals_flushed()
    def train() -> None:
        optimiser = torch.optim.Adam(parameters, lr=lr, weight_decay=decay, fused=True)
        for _ in range(epochs):
            optimiser.zero_grad(set_to_none=True)
            cross_entropy(scores(), task.train_labels).backward()
            optimiser.step()

    return Loop(train, torch.no_grad()(scores), layers)


def _one_task(graph: Graph, backbone: str, epochs: int) -> tuple[BackboneLearner, Task]:
    config = recipe("finetune", backbone, epochs, classes_per_task=graph.num_classes)
    learner, stream = opened(config, graph)
    return learner, stream.open(0)


def edge_index(graph: Graph) -> Tensor:
    """Return the entries of A + I as PyG has them.  -> int64 [2, entries]"""
    matrix = normalised(graph, scheme="none")
    rows = repeat(torch.arange(graph.num_nodes), matrix.crow_indices().diff().long())
    return torch.stack([matrix.col_indices().long(), rows])


OURS, DENSE, PYG = "ours", "ours, dense", "PyG"
LOOPS: dict[str, Callable[[Graph, str, int], Loop]] = {OURS: ours, DENSE: ours_dense, PYG: pyg}


def wanted_loops(graph: Graph) -> list[str]:
    """Return the ways to train on a graph; dense features need no dense copy."""
    return [way for way in LOOPS if way != DENSE or graph.features.layout != torch.strided]


def dense_or_ours(figures: Mapping[str, float]) -> float:
    """Return our figure on dense features."""
    return figures.get(DENSE, figures[OURS])


@torch.no_grad()
def take_weights(layers: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Give our layers the weights of PyG's."""
    for layer, other in zip(layers, theirs, strict=True):
        layer.linear.weight.copy_(other.lin.weight)
        layer.linear.bias.copy_(other.bias)
        if not hasattr(layer, "query"):
            continue
        for mine, its in ((layer.query, other.att_dst), (layer.key, other.att_src)):
            # Our last layer attends by h, PyG's by W h: a·(W h) = (a W)·h.
            mine.copy_(its[0] if mine.shape == its[0].shape else its[0] @ other.lin.weight)


def disagreement(loops: Mapping[str, Loop]) -> float:
    """Return how far scores differ at equal weights; raise if it is far."""
    expected, worst = loops[PYG].scores(), 0.0
    for name, loop in loops.items():
        if name == PYG:
            continue
        take_weights(loop.layers, loops[PYG].layers)
        difference = float((loop.scores() - expected).abs().max())
        if not difference <= AGREE:  # nor may it be no number
            raise ValueError(f"{name} differs from {PYG} by {difference}, more than {AGREE}")
        worst = max(worst, difference)
    return worst


@dataclass(frozen=True)
class Race:
    """One graph's and one backbone's seconds an epoch; a way that was not taken is absent."""

    graph: str
    backbone: str
    features: str
    seconds: dict[str, float]
    difference: float


def race(name: str, graph: Graph, backbone: str, *, rounds: int) -> Race:
    """Check that all ways give the same scores, then let them take turns."""
    epochs = LOOP_EPOCHS[backbone]
    loops = {way: LOOPS[way](graph, backbone, epochs) for way in wanted_loops(graph)}
    difference = disagreement(loops)
    best = interleaved({w: p.train for w, p in loops.items()}, rounds=rounds, limit=30.0)
    seconds = {way: taken / epochs for way, taken in best.items()}
    return Race(name, backbone, layout(graph.features), seconds, difference)


def loop_peak(name: str, backbone: str, way: str) -> int:
    """Return a loop's memory beyond the graph; to be called in a process of its own."""
    LOOPS[way](CASES[TINY].load(), backbone, 1).train()  # thread pools and libraries come first
    graph = CASES[name].load()
    return extra_peak(lambda: LOOPS[way](graph, backbone, 1).train())


def method_table(
    name: str, costs: Mapping[Line, Cost], peaks: Mapping[Gauged, tuple[int, int]]
) -> Table:
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
                *(_size(size) for size in peaks.get((name, method, backbone), (None, None))),
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
            "peak beyond graph MB",
            "process peak MB",
        ),
        rows,
    )


def _size(size: float | None) -> str:
    return "-" if size is None else megabytes(size)


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
        "peak: a process each, 1 epoch a task, its allocator's slack included. beyond graph: how "
        "far the resident size rises above what it is with the graph loaded; process peak: with "
        "Python, torch and the graph.",
    )


def race_table(races: Iterable[Race], notes: Sequence[str] = ()) -> Table:
    """Return the time of an epoch, ours and PyG's."""
    rows = []
    for found in races:
        seconds = found.seconds
        rows.append(
            [
                f"{found.graph}, {found.backbone}",
                found.features,
                *(ms(seconds[way]) if way in seconds else "-" for way in LOOPS),
                *(times(own / seconds[PYG]) for own in (seconds[OURS], dense_or_ours(seconds))),
                f"{found.difference:.0e}",
            ]
        )
    return Table(
        "An epoch on a whole graph beside a bare loop over PyG's layers (ms, best round)",
        (
            "graph, backbone",
            "features",
            *LOOPS,
            "ours / PyG",
            "ours / PyG, both dense",
            "largest difference",
        ),
        rows,
        (
            "Target: gcn at most 1.2x. PyG: `GCNConv(normalize=False)` over our normalised adjacency "
            "as a `torch.sparse_csr` tensor; `GATConv` over an edge list with self-loops, a message "
            "an edge. 2 layers of 256 (gat: 8 heads of 32), ReLU between, fused Adam, cross-entropy "
            "over all training nodes, denormals flushed.",
            "ours: `finetune` through the trainer, everything it does in a task included, matrices "
            "that are made once a graph excepted; they are made for PyG beforehand too.",
            "PyG takes no CSR features: it has the dense copy. `ours` has them as the library holds "
            "them, `ours, dense` as PyG has.",
            "largest difference: of scores at equal weights, before training.",
            *notes,
        ),
    )


def loop_memory_table(peaks: Mapping[Gauged, int]) -> Table:
    """Return the peak memory of training."""
    rows = []
    for name in dict.fromkeys(name for name, _, _ in peaks):
        sizes = {way: size for (graph, _, way), size in peaks.items() if graph == name}
        rows.append(
            [
                f"{name}, {REMEMBERED}",
                *(_size(sizes.get(way)) for way in LOOPS),
                *(times(sizes[PYG] / max(1, own)) for own in (sizes[OURS], dense_or_ours(sizes))),
            ]
        )
    return Table(
        "Peak resident memory of the same beyond the graph (MB, a process each)",
        ("graph, backbone", *LOOPS, "PyG / ours", "PyG / ours, both dense"),
        rows,
        (
            "Everything that training needs counts: matrices or edge list, dense copies, weights, "
            "Adam, one epoch.",
        ),
    )


def tables(options: Options) -> list[Table]:
    """Measure everything, memory first: this process is still small then."""
    wanted = QUICK if options.quick else ROUNDS
    cases, reasons = present(wanted)
    asked = lines()[:1] if options.quick else lines()
    peaks = apart(peak, [(case.name, *line) for case in cases for line in asked], options)
    loaded = [(case.name, case.load()) for case in cases]
    ways = [(name, REMEMBERED, way) for name, graph in loaded for way in wanted_loops(graph)]
    loop_peaks = apart(loop_peak, ways, options)
    learn(("finetune", "gcn"), CASES[TINY].load(), 1)  # torch's imports on first use come first
    found = [
        method_table(name, measure(graph, rounds=wanted[name]), peaks) for name, graph in loaded
    ]
    races = [
        race(name, graph, backbone, rounds=wanted[name])
        for backbone in LOOP_EPOCHS
        for name, graph in loaded
    ]
    if found:
        found[-1] = replace(found[-1], notes=notes_on_methods())
    return [*found, race_table(races, reasons), loop_memory_table(loop_peaks)]


def apart(function: Callable[..., T], calls: Sequence[Gauged], options: Options) -> dict[Gauged, T]:
    """Call a gauge of memory in a process each, two at a time; in this one if quick."""
    if options.quick:
        return {call: function(*call) for call in calls}
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda call: in_own_process(function, *call), calls))
    return dict(zip(calls, found, strict=True))


if __name__ == "__main__":
    run("methods", "Methods and backbones", tables)
