"""A whole stream: what is cut, embedded, counted and tested, in the order in which it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from evergraph.core.mapped import RESIDENT
from evergraph.experiments.planning.constants import Constants, interpolated
from evergraph.experiments.planning.encoding import Place, file_rate
from evergraph.experiments.planning.graph_facts import GraphFacts
from evergraph.experiments.planning.holding import Holding
from evergraph.experiments.planning.learning import Learning, Size, Smoothing
from evergraph.experiments.planning.machine import Machines
from evergraph.experiments.planning.sampling import sampling_seconds
from evergraph.experiments.planning.steps import Step
from evergraph.experiments.planning.tasks import Cut, TaskCuts, task_cuts
from evergraph.graphs.induced import BLOCK_ENTRIES
from evergraph.memory.gathered_statistics import BLOCK_ROWS
from evergraph.nn.expansion import BLOCK_VALUES

# Bytes of arrays as long as nodes are: owners, labels, places and parts of a stream.
NODE_BYTES = 90
# Bytes that are made of each entry while a block of them is looked at.
ENTRY_BYTES = 45
# Of features while they are expanded and multiplied: some blocks of ``BLOCK_VALUES``, one in use.
EXPANDED_BYTES = 6 * 4 * BLOCK_VALUES

Embed = Callable[[str, Size, Smoothing, Place], list[Step]]


@dataclass(frozen=True)
class Stream:
    """A stream by class on a graph, learned by a method.

    Attributes:
        facts, learning, machines, constants: what, how, where, and what work costs there.
        embed: how a graph is embedded: here, or by several machines.
        classes_per_task: new ones with every task.
        edges: whether nodes have neighbours; without, features are taken for embeddings.
    """

    facts: GraphFacts
    learning: Learning
    machines: Machines
    constants: Constants
    embed: Embed
    classes_per_task: int = 2
    edges: bool = True

    def steps(self, holding: Holding) -> list[Step]:
        """Return all that is done, and count in ``holding`` what is held."""
        facts = self.facts
        holding.hold("stream", NODE_BYTES * facts.nodes)
        if not facts.mapped:
            holding.hold("graph", facts.adjacency_bytes + facts.feature_bytes)
        found = [Step("start", "here", self.constants.start_s, memory=holding.peak)]
        for index, task in enumerate(task_cuts(facts, classes_per_task=self.classes_per_task)):
            found += self._task(index, task, holding)
        return found

    def _task(self, index: int, task: TaskCuts, holding: Holding) -> list[Step]:
        own = f"task {index}"
        found = self._cut(own, task.own, holding) + self._embed(own, task.own, holding)
        found += self._learn(task, holding)
        holding.hold(f"{own} exam", self._kept_exam(task.own, holding))
        found += self._cut("grown", task.seen, holding)
        holding.drop(*self._names("seen"))
        for old, new in zip(self._names("grown"), self._names("seen"), strict=True):
            holding.rename(old, new)
        found += self._embed("seen", task.seen, holding)
        return found + self._answer(index, task, holding)

    def _kept_exam(self, cut: Cut, holding: Holding) -> float:
        size = self.learning.exam_bytes(cut.tested)
        return size if holding.stays(size) else 0.0

    def _names(self, graph: str) -> list[str]:
        made = [f"{graph} embedded {place}" for place in range(len(self.learning.smoothings))]
        return [f"{graph} entries", f"{graph} features", *made]

    def _cut(self, name: str, cut: Cut, holding: Holding) -> list[Step]:
        """Return the cutting of a subgraph; room is made for all entries of its rows."""
        c, looked_at = self.constants, cut.looked_at if self.edges else 0
        features = 4 * cut.nodes * self.facts.features
        looking = ENTRY_BYTES * min(looked_at, BLOCK_ENTRIES["cpu"])
        stays = holding.take(f"{name} entries", 4 * looked_at)
        holding.work(looking)
        taken = holding.take(f"{name} features", features)
        pages = min(self.facts.feature_bytes, RESIDENT) if self.facts.mapped else 0
        if holding.limit is None:  # else they are let go before anything is embedded
            holding.hold("pages", pages)
        else:
            holding.work(pages)
        seconds = c.cut_ns * looked_at / c.speedup(c.cut_speedup, self.machines.cores)
        seconds += c.row_byte_ns * features
        steps = [Step("cut tasks", "here", seconds * 1e-9, memory=holding.peak)]
        moved = (0 if stays else 4 * looked_at) + (0 if taken else features)
        if moved:
            rate, _ = file_rate(moved, self.place(holding))
            steps.append(Step("cut tasks: files", "here", moved / rate))
        return steps

    def _embed(self, name: str, cut: Cut, holding: Holding) -> list[Step]:
        if not self.edges:
            return []
        size = Size(cut.nodes, cut.entries, mapped=not holding.in_memory(f"{name} features"))
        return [
            step
            for number, smoothing in enumerate(self.learning.smoothings)
            for step in self.embed(
                f"{name} embedded {number}", size, smoothing, self.place(holding)
            )
        ]

    def place(self, holding: Holding) -> Place:
        """Return where it is learned."""
        return Place(self.machines, self.constants, holding)

    def _learn(self, task: TaskCuts, holding: Holding) -> list[Step]:
        learning, c = self.learning, self.constants
        holding.hold("learner", learning.kept_bytes(task.classes))
        holding.work(self._taken(task.own.training, holding) + EXPANDED_BYTES)
        if learning.epochs:
            nodes = task.own.training + learning.stored * task.classes
            batches = learning.epochs * -(-nodes // max(learning.batch, 1))
            flops = nodes * learning.training_flops(task.classes)
            seconds = batches * c.step_s + self._products(flops, c.answering)
            hops = learning.smoothings[0].topology.hops
            chosen = sampling_seconds(task.own, hops=hops, cores=self.machines.cores)
            return [
                Step("train", "here", seconds, memory=holding.peak),
                Step("choose what is stored", "here", chosen),
            ]
        flops = task.own.training * learning.training_flops(task.classes)
        flops += task.own.validation * learning.validation_flops()
        workers = self.machines.count if task.own.training > BLOCK_ROWS else 1
        counting = self._products(flops, c.counting) / workers
        counted = Step("count statistics", "everywhere" if workers > 1 else "here", counting)
        holding.work(learning.solving_bytes(task.classes))
        solving = learning.solve_flops(task.classes) / (c.solving * 1e9)
        solving /= c.speedup(c.product_speedup, self.machines.cores)
        return [replace(counted, memory=holding.peak), Step("solve", "here", solving)]

    def _answer(self, index: int, task: TaskCuts, holding: Holding) -> list[Step]:
        """Return the tests after a task: of every task in its own graph, and of all in one."""
        learning, c = self.learning, self.constants
        each, again = learning.answer_flops(task.classes), task.seen.tested
        if learning.exam_bytes(task.seen.tested // (index + 1)):  # features of own graphs are kept
            again = task.own.tested
        flops = (task.seen.tested + again) * each
        flops += (task.seen.tested - again) * 2.0 * learning.width * task.classes
        holding.work(self._taken(task.seen.tested, holding) + EXPANDED_BYTES)
        seconds = self._products(flops, c.answering) + (index + 2) * c.exam_s
        return [Step("test", "here", seconds, memory=holding.peak)]

    def _taken(self, nodes: int, holding: Holding) -> float:
        """Return the bytes of the embeddings of some nodes, 0 where they go to a file."""
        size = 4.0 * self.learning.dims * nodes
        return size if holding.stays(size) else 0.0

    def _products(self, flops: float, rates: tuple[tuple[float, float], ...]) -> float:
        c = self.constants
        rate = interpolated(rates, self.learning.width) * 1e9
        return flops / rate / c.speedup(c.product_speedup, self.machines.cores)
