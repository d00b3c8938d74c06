"""A delta learned, against everything learned again: cost and accuracy with 100,000 nodes known.

python benchmarks/accuracy/retraining.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Options, Table, ms, run, times

from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.evaluation import balanced_accuracy
from evergraph.graphs import Graph
from evergraph.methods import Joint
from evergraph.nn import PDGNN
from evergraph.online import Delta
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.streams import GraphStream
from evergraph.training import Trainer
from evergraph.training.trainer import Objective

HELD_OUT = 0.2
BATCH = 100
ACCURACIES = ("accuracy on held-back labels, %", "balanced, %")
EPOCHS = 10  # of the network that is trained from scratch


@dataclass(frozen=True, eq=False)
class Growth:
    """A graph in the order in which its nodes arrive, and which labels nobody is told."""

    graph: Graph
    order: Tensor
    hidden: Tensor

    def delta(self, start: int, stop: int) -> Delta:
        """Return the nodes that arrive from one place of the order to another, and their edges."""
        new = self.order[start:stop]
        met = torch.zeros(self.graph.num_nodes, dtype=torch.bool)
        met[self.order[:stop]] = True
        edges = [
            (int(node), int(other))
            for node in new
            for other in self.graph.neighbours(int(node))
            if met[int(other)]
        ]
        labels = [None if self.hidden[n] else int(self.graph.labels[n]) for n in new]
        return Delta(
            nodes=new.tolist(), features=self.graph.features[new], labels=labels, edges=edges
        )


def main(options: Options) -> list[Table]:
    """Measure everything."""
    graph = load("wordnet")
    known, deltas = (3_000, 3) if options.quick else (100_000, 20)
    order = torch.randperm(graph.num_nodes, generator=seeded(0, "order"))
    hidden = torch.rand(graph.num_nodes, generator=seeded(0, "hidden")) < HELD_OUT
    growth = Growth(graph, order, hidden)
    whole = min(graph.num_nodes, 3_000) if options.quick else graph.num_nodes
    return [compared(growth, known, deltas), histories(growth, whole, 5 if options.quick else 500)]


def compared(growth: Growth, known: int, deltas: int) -> Table:
    """Return what a delta costs in each way, and how good each is at the end."""
    learner = OnlineLearner()
    learner.apply(growth.delta(0, known))
    taken = []
    for number in range(1 + deltas):
        delta = growth.delta(known + BATCH * number, known + BATCH * (number + 1))
        start = time.process_time()
        learner.apply(delta)
        taken.append(time.process_time() - start)
    stop = known + BATCH * (1 + deltas)
    asked = growth.order[:stop]
    asked = asked[growth.hidden[asked]]
    again, seconds = refitted(growth, stop)
    alike, once = refitted(growth, stop, objective="plain")
    network, trained = network_from_scratch(growth, stop)
    loading, *taken = taken
    mean = sum(taken) / len(taken)
    rows = [
        ("a delta learned", ms(mean), "1.00x", *accuracies(growth, learner, asked)),
        (
            "all embedded and the same head fitted again",
            ms(seconds),
            times(seconds / mean),
            *accuracies(growth, again, asked),
        ),
        (
            "the same, every node counting alike",
            ms(once),
            times(once / mean),
            *accuracies(growth, alike, asked),
        ),
        (
            f"all embedded and a network trained, {EPOCHS} epochs",
            ms(trained),
            times(trained / mean),
            f"{100 * network:.1f}",
            "-",
        ),
    ]
    return Table(
        f"WordNet, {known:,} nodes known, deltas of {BATCH} nodes in random order",
        ("what a user does after a delta", "CPU ms", "to ours", *ACCURACIES),
        rows,
        (
            f"ours: mean of {deltas} deltas, the dearest {ms(max(taken))} ms. One before them took "
            f"{ms(loading)} ms, as it loads compiled code, or compiles it. The others once, after "
            "the last delta; every node known then is in.",
            "CPU time, user and system, of all threads together: other work on the machine does "
            "not count.",
            "The network is tested on a fifth of the nodes of its own, and trained on 70 %.",
        ),
    )


def histories(growth: Growth, known: int, deltas: int) -> Table:
    """Return what many deltas come to, before and after ``refit``, against a single one."""
    asked = growth.order[:known]
    asked = asked[growth.hidden[asked]]
    bounds = torch.linspace(0, known, deltas + 1).long().tolist()
    learner, start, rows = OnlineLearner(), time.process_time(), []
    for first, last in pairwise(bounds):
        learner.apply(growth.delta(first, last))
    for name in (f"{deltas} deltas", "the same after refit"):
        seconds = time.process_time() - start
        rows.append((name, f"{seconds:.1f}", *accuracies(growth, learner, asked)))
        start = time.process_time()
        learner.apply(Delta(refit=True))
    once, seconds = refitted(growth, known)
    rows.append(("one delta", f"{seconds:.1f}", *accuracies(growth, once, asked)))
    return Table(
        f"WordNet in random order, {known:,} nodes", ("given as", "CPU s", *ACCURACIES), rows, ()
    )


def accuracies(growth: Growth, learner: OnlineLearner, asked: Tensor) -> tuple[str, str]:
    """Return the accuracy over nodes and over classes, in percent."""
    right = growth.graph.labels[asked]
    given = torch.tensor(learner.predict(asked.tolist()))
    plain = given.eq(right).double().mean()
    return f"{100 * plain:.1f}", f"{100 * balanced_accuracy(given, right):.1f}"


def refitted(
    growth: Growth, stop: int, *, objective: Objective = "balanced"
) -> tuple[OnlineLearner, float]:
    """Learn everything at once from nothing; return the learner and the CPU seconds."""
    everything = growth.delta(0, stop)
    start = time.process_time()
    learner = OnlineLearner(head=FusedHead(objective=objective))
    learner.apply(everything)
    return learner, time.process_time() - start


def network_from_scratch(growth: Growth, stop: int) -> tuple[float, float]:
    """Train f_out on embeddings of everything known; return accuracy and CPU seconds."""
    nodes = growth.order[:stop].sort().values
    part = growth.graph.subgraph(nodes)
    start = time.process_time()
    # One task of all classes; its own test nodes are held back instead of ours.
    stream = GraphStream(
        part, classes_per_task=part.num_classes, split=(0.7, 0.1, HELD_OUT), min_class_size=3
    )
    trainer = Trainer(epochs=EPOCHS, batch_size=512, device="cpu")
    learner = Joint(backbone=PDGNN(), trainer=trainer, generator=seeded(0, "network"))
    learner.fit_task(stream.open(0, cumulative=True))
    seconds = time.process_time() - start
    exam = stream.exams(0, "global")[0]
    found = learner.predict(exam.graph, exam.nodes)
    return float((found == exam.labels).float().mean()), seconds


if __name__ == "__main__":
    run("retraining", "A delta against everything again", main)
