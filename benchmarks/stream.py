"""A whole class-IL stream with ``tem``: how long, where the time goes, and what the cache saves.

python benchmarks/stream.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.graphs import CASES, present
from benchmarks.measure import (
    Options,
    Table,
    in_own_process,
    interleaved,
    megabytes,
    run,
    seconds_of,
    share,
    times,
)

from evergraph.core.device import peak_rss_bytes
from evergraph.experiments import protocol
from evergraph.experiments.build import build_learner, build_stream, resolved
from evergraph.experiments.config import RunConfig, merged
from evergraph.experiments.presets import read_preset
from evergraph.experiments.protocol import TaskReport, learn_stream
from evergraph.experiments.result import PHASES
from evergraph.graphs import Graph
from evergraph.memory import EmbeddingMemory
from evergraph.methods import TEM
from evergraph.nn import MLP, PDGNN
from evergraph.streams import GraphStream
from evergraph.topology import EmbeddingCache
from evergraph.training import batches
from evergraph.training import trainer as training
from evergraph.training.trainer import Adam

# How many epochs a task are run, by graph and recipe: whole recipes take many minutes. What is
# done every epoch is scaled up to the recipe's number, and said. The default recipe takes small
# batches, so that its epochs are many times longer than the paper's.
EPOCHS = {
    "wordnet": {"default": 1, "paper": 10},
    "computers": {"default": 4, "paper": 40},
    "coauthor-cs": {"default": 1, "paper": 5},
}
QUICK = {"synthetic-5000": {"default": 4, "paper": 20}}
PROFILED_EPOCHS = 1

EMBEDDING, EVALUATION, STREAM, SAMPLING = "embedding", "evaluation", "stream building", "sampling"
FORWARD, BACKWARD, LOSS = "head forward", "head backward", "batch rows and loss"
OPTIMISER, BATCHES, EXAMPLES, REST = "optimiser", "batch order", "examples", "the rest"
HEAD = (FORWARD, BACKWARD, LOSS)
EVERY_EPOCH = (*HEAD, OPTIMISER, BATCHES)
SECTIONS = (EMBEDDING, *HEAD, EVALUATION, OPTIMISER, BATCHES, EXAMPLES, SAMPLING, STREAM, REST)
PRODUCTS = ("aten::addmm", "aten::mm")


def recipe(name: str, epochs: int | None = None) -> RunConfig:
    """Return the library's default recipe or a preset laid over it, on the CPU."""
    values = {**RunConfig().to_dict(), "method": "tem", "device": "cpu"}
    if name != "default":
        values = merged(values, read_preset(name))
    config = RunConfig.of(values)
    if epochs is None or epochs >= epochs_of(config):
        return config
    return RunConfig.of(merged(values, {"training": {"epochs": epochs}}))


def epochs_of(config: RunConfig) -> int:
    """Return a recipe's epochs, the backbone's own where it names none."""
    epochs = resolved(config).training.epochs
    assert epochs is not None
    return epochs


class Stopwatch:
    """Seconds by section; a section inside another is taken out of the outer one."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._open: list[tuple[str, float]] = []

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Count what happens inside."""
        now = time.perf_counter()
        self._charge(now)
        self._open.append((name, now))
        with record_function(name):
            yield
        now = time.perf_counter()
        self._charge(now)
        self._open.pop()
        if self._open:
            self._open[-1] = (self._open[-1][0], now)

    def _charge(self, now: float) -> None:
        if self._open:
            name, since = self._open[-1]
            self.seconds[name] += now - since

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as a section; the head at work in evaluation is evaluation."""

        def inside(*args: Any, **kwargs: Any) -> Any:
            evaluating = name == FORWARD and self._open[-1][0] == EVALUATION
            with self.section(EVALUATION if evaluating else name):
                return function(*args, **kwargs)

        return inside


def _all_at_once(*args: Any, **kwargs: Any) -> Iterator[Any]:
    return iter(list(batches(*args, **kwargs)))  # so that drawing the order happens inside


PLACES: tuple[tuple[Any, str, str], ...] = (
    (EmbeddingCache, "__call__", EMBEDDING),
    (MLP, "forward", FORWARD),
    (Tensor, "backward", BACKWARD),
    (TEM, "loss", LOSS),
    (Adam, "step", OPTIMISER),
    (TEM, "begin_task", EXAMPLES),
    (EmbeddingMemory, "store", SAMPLING),
    (EmbeddingMemory, "measure", SAMPLING),
    (protocol, "evaluate", EVALUATION),
    (GraphStream, "__init__", STREAM),
    (GraphStream, "open", STREAM),
    (GraphStream, "exams", STREAM),
)


@contextmanager
def watched(stopwatch: Stopwatch) -> Iterator[None]:
    """Put the stopwatch into the library for as long as the block lasts."""
    with ExitStack() as stack:
        for owner, name, section in PLACES:
            timed = stopwatch.timed(section, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, timed))
        ordered = stopwatch.timed(BATCHES, _all_at_once)
        stack.enter_context(mock.patch.object(training, "batches", ordered))
        stack.enter_context(stopwatch.section(REST))
        yield


def learn(config: RunConfig, graph: Graph, *, recompute: bool = False) -> list[TaskReport]:
    """Learn a stream from start to end, embeddings cached or computed at every epoch."""
    learner = build_learner(config, seed=0)
    assert isinstance(learner, TEM)
    if recompute:
        assert isinstance(learner.backbone, PDGNN)
        model = learner.backbone
        cache = Recomputing(model.topology, scaling=model.scaling, device=learner.device)
        model.embeddings = cache
        learner.trainer.on_epoch = cache.recompute
    return list(learn_stream(learner, build_stream(config, graph, seed=0)))


class Recomputing(EmbeddingCache):
    """Encodes the current graph again for every epoch, as the released code does."""

    latest: Graph | None = None

    def __call__(self, graph: Graph, rows: Tensor | None = None) -> Tensor:
        """Return the embeddings, and remember of which graph."""
        self.latest = graph
        return super().__call__(graph, rows)

    def recompute(self, task: int, epoch: int) -> None:
        """Encode again; the first epoch's embeddings have just been made."""
        if epoch and self.latest is not None:
            self.encode(self.latest)


@dataclass(frozen=True)
class Profile:
    """One stream's figures.

    Attributes:
        phases: the library's own seconds of embed, train and evaluate.
        sections: seconds by section, each without those inside it.
        products: the share of the head's seconds that are matrix products.
        peak: the process's peak resident bytes.
        one_off: seconds that the first stream of a process takes longer than the next.
        epochs: epochs run, and epochs of the recipe.
    """

    name: str
    recipe: str
    phases: dict[str, float]
    sections: dict[str, float]
    products: float
    peak: int
    one_off: float
    epochs: tuple[int, int]

    @property
    def scaled(self) -> dict[str, float]:
        """Seconds by section of the recipe's own number of epochs."""
        factor = self.epochs[1] / self.epochs[0]
        return {s: v * (factor if s in EVERY_EPOCH else 1.0) for s, v in self.sections.items()}


def profile_stream(name: str, recipe_name: str, epochs: int) -> Profile:
    """Learn a stream under the stopwatch, then a short one under torch's profiler."""
    one_off = warm_up()
    graph = CASES[name].load()
    config = recipe(recipe_name, epochs)
    stopwatch = Stopwatch()
    with watched(stopwatch):
        reports = learn(config, graph)
    peak = peak_rss_bytes()
    phases = {phase: sum(report.seconds[phase] for report in reports) for phase in PHASES}
    sections = {section: stopwatch.seconds[section] for section in SECTIONS}
    ran = epochs_of(config), epochs_of(recipe(recipe_name))
    products = products_in_head(recipe(recipe_name, PROFILED_EPOCHS), graph)
    return Profile(name, recipe_name, phases, sections, products, peak, one_off, ran)


def warm_up() -> float:
    """Learn a tiny stream twice; return how much longer the first took (imports on first use)."""
    tiny, config = CASES["synthetic-500"].load(), recipe("paper", 1)
    first, second = (seconds_of(lambda: learn(config, tiny)) for _ in range(2))
    return first - second


def products_in_head(config: RunConfig, graph: Graph) -> float:
    """Return what share of the head's forward, loss and backward the matrix products take."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled, watched(Stopwatch()):
        learn(config, graph)
    head, products = 0.0, 0.0
    for event in profiled.events() or ():
        inside = _sections_around(event)
        if EVALUATION in inside:
            continue
        if event.name in (LOSS, BACKWARD):
            head += event.cpu_time_total
        elif event.name in PRODUCTS and inside & set(HEAD):
            products += event.self_cpu_time_total
    return products / head if head else 0.0


def _sections_around(event: Any) -> set[str]:
    """Return the names of all events that an event happened in."""
    names = set()
    while (event := event.cpu_parent) is not None:
        names.add(event.name)
    return names


def compare_habits(name: str, recipe_name: str, epochs: int) -> dict[str, float]:
    """Return the best seconds of a stream with embeddings cached and with them recomputed."""
    warm_up()
    graph = CASES[name].load()
    config = recipe(recipe_name, epochs)
    return interleaved(
        {
            "ours": lambda: learn(config, graph),
            "recomputed": lambda: learn(config, graph, recompute=True),
        },
        rounds=2,
    )


def phase_table(profiles: Iterable[Profile], notes: Sequence[str] = ()) -> Table:
    """Return the seconds of whole streams and their processes' memory."""
    rows = []
    for found in profiles:
        factor = found.epochs[1] / found.epochs[0]
        phases = [found.phases[phase] for phase in PHASES]
        rows.append([
            f"{found.name}, {found.recipe}",
            f"{found.epochs[0]} of {found.epochs[1]}",
            *(f"{seconds:.2f}" for seconds in (*phases, sum(phases))),
            times(factor),
            f"{sum(found.scaled.values()):.0f}",
            f"{found.one_off:.2f}",
            megabytes(found.peak),
        ])  # fmt: skip
    return Table(
        "A stream's seconds, class-IL, `tem`, tested locally and globally after every task",
        ("graph, recipe", "epochs run", "embed s", "train s", "evaluate s", "all s",
         "recipe / run epochs", "whole recipe s, scaled", "one-off s", "process peak MB"),
        rows,
        ("scaled: what is done every epoch times recipe / run epochs, the rest as measured.",
         "one-off: what is imported when a process learns its first stream; in no other column or "
         "table.",
         "process peak: Python, torch, the graph and everything else.", *notes),
    )  # fmt: skip


def share_table(profiles: Sequence[Profile]) -> Table:
    """Return where the time of the recipe's whole stream goes."""
    rows = [
        [f"{found.name}, {found.recipe}"]
        + [share(found.scaled[s], sum(found.scaled.values())) for s in SECTIONS]
        for found in profiles
    ]
    return Table(
        "Where the time of a whole recipe goes (shares; sections exclude each other)",
        ("graph, recipe", *SECTIONS),
        rows,
        ("wall clock around each section of the library; every-epoch sections scaled as above.",
         f"{FORWARD}: products, activation, dropout; {LOSS}: picking a batch's rows, "
         f"cross-entropy; {EXAMPLES}: assembling what a task trains on; {SAMPLING}: ego sizes, "
         "ranking, storing, coverage.",),
    )  # fmt: skip


def overhead_table(profiles: Sequence[Profile]) -> Table:
    """Return what is left outside the work that must be done, in both accountings."""
    rows = []
    for found in profiles:
        whole = sum(found.scaled.values())
        head = sum(found.scaled[section] for section in HEAD)
        needed = found.scaled[EMBEDDING] + found.scaled[EVALUATION]
        rows.append([
            f"{found.name}, {found.recipe}",
            share(needed, whole),
            share(head, whole),
            share(found.products, 1.0),
            share(whole - needed - head * found.products, whole),
            share(whole - needed - head, whole),
        ])  # fmt: skip
    return Table(
        "Outside embedding, head and evaluation",
        ("graph, recipe", "embedding + evaluation", "head as a whole", "products in head",
         "outside, head's products alone", "outside, head as a whole"),
        rows,
        ("Target: at most 10 % outside. products in head: self time of "
         f"{' and '.join(PRODUCTS)} over the head's forward, loss and backward, by torch.profiler "
         f"on a stream of {PROFILED_EPOCHS} epochs a task.",),
    )  # fmt: skip


def habit_table(found: Iterable[tuple[str, int, Mapping[str, float]]]) -> Table:
    """Return what encoding once saves."""
    rows = [
        [name, str(epochs), f"{seconds['ours']:.2f}", f"{seconds['recomputed']:.2f}",
         times(seconds["recomputed"] / seconds["ours"])]
        for name, epochs, seconds in found
    ]  # fmt: skip
    return Table(
        "Embedding once against every epoch, at equal epochs",
        ("graph, recipe", "epochs", "ours s", "recomputed s", "recomputed / ours"),
        rows,
        ("Whole streams taking turns, evaluation included; recomputed is the released code's "
         "habit, with our encoder, under the recipe it runs. The ratio grows with the epochs.",),
    )  # fmt: skip


def tables(options: Options) -> list[Table]:
    """Measure everything, each stream in a process of its own."""
    wanted = QUICK if options.quick else EPOCHS
    cases, reasons = present(wanted)
    runs = [(c.name, name, epochs) for c in cases for name, epochs in wanted[c.name].items()]
    profiles = [in_own_process(profile_stream, *each) for each in runs]
    habits = [
        (f"{graph}, {name}", epochs, in_own_process(compare_habits, graph, name, epochs))
        for graph, name, epochs in runs
        if name == "paper"
    ]
    return [
        phase_table(profiles, reasons),
        share_table(profiles),
        overhead_table(profiles),
        habit_table(habits),
    ]


if __name__ == "__main__":
    run("stream", "Whole streams", tables)
