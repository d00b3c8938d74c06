"""What a delta costs, and what a learner says, when nodes that hardly moved are not counted again.

python benchmarks/tolerance.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, ms, run, times
from benchmarks.retraining import BATCH, HELD_OUT, Growth

from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import PATIENCE, TOLERANCE, OnlineLearner

TOLERANCES = (0.005, 0.01, 0.02, 0.05, 0.1)
LONG = 1000  # nodes of a delta where a learner comes a long way with a tolerance


@dataclass(eq=False)
class Contender:
    """A learner, what its deltas have cost, and how many nodes each has counted."""

    name: str
    learner: OnlineLearner
    seconds: list[float] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    solved: int = 0

    def apply(self, delta: Any) -> None:
        """Apply a delta, in CPU seconds of all threads."""
        start = time.process_time()
        done = self.learner.apply(delta)
        self.seconds.append(time.process_time() - start)
        self.counted.append(done.counted)
        self.solved += self.learner.status().solved == done.seq

    @property
    def mean(self) -> float:
        """CPU seconds of a delta, on the mean."""
        return sum(self.seconds) / len(self.seconds)


def main(options: Options) -> list[Table]:
    """Measure everything."""
    graph = load("wordnet")
    known, deltas, begin = (3_000, 3, 1_000) if options.quick else (100_000, 16, 60_000)
    order = torch.randperm(graph.num_nodes, generator=seeded(0, "order"))
    hidden = torch.rand(graph.num_nodes, generator=seeded(0, "hidden")) < HELD_OUT
    growth = Growth(graph, order, hidden)
    return [*compared(growth, known, deltas), far_from(growth, begin, known)]


def compared(growth: Growth, known: int, deltas: int) -> list[Table]:
    """Return what deltas cost with each tolerance, taking turns, and where the time goes."""
    contenders = begun(growth, known)
    watch = Stopwatch()
    watch.watch(contenders[-1].learner)
    for number in range(deltas):
        delta = growth.delta(known + BATCH * number, known + BATCH * (number + 1))
        shift = number % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            contender.apply(delta)
    asked, right = held_out(growth, known + BATCH * deltas)
    exact: dict[str, Tensor] = {}  # of each head the first, which counts all that moved
    rows = []
    for contender in contenders:
        cost = [ms(contender.mean), times(contenders[0].mean / contender.mean)]
        cost += [f"{sum(contender.counted) / deltas:,.0f}", str(contender.solved)]
        said = chances(contender.learner, asked)
        against = exact.setdefault(contender.learner.head.name, said)
        rows.append([contender.name, *cost, *differences(said, against, right)])
    table = Table(
        f"WordNet, {known:,} nodes known, deltas of {BATCH} nodes in random order",
        ("learner", "CPU ms a delta", "cheaper", "counted a delta", "times solved", *MEASURES),
        rows,
        (
            f"mean of {deltas} deltas, all learners taking turns; all began with the same state, "
            "in which every node is counted as it is.",
            "eager: solved with every delta; otherwise when it is due, see docs/decisions/0041.",
            "held-out labels: a fifth, never told. Differences: of probabilities from those of the "
            "exact learner of the same head (tolerance 0, eager); the largest of all, and the mean "
            "of each node's largest.",
        ),
    )
    return [table, watch.table(contenders[-1], deltas)]


def begun(growth: Growth, known: int) -> list[Contender]:
    """Return learners of all nodes but the last; the one with all defaults comes last."""
    first = growth.delta(0, known)
    auto, analytic = OnlineLearner(), OnlineLearner(head=AnalyticHead(width=1024))
    for learner in (auto, analytic):
        learner.apply(first)

    def copied(learner: OnlineLearner, tolerance: float, patience: int) -> OnlineLearner:
        given = learner.parameters | {"tolerance": tolerance, "patience": patience}
        twin = OnlineLearner.from_parameters(given)
        twin.restore({k: v.clone() for k, v in learner.state().items()}, learner.about())
        return twin

    found = [Contender("tolerance 0, eager", copied(auto, 0.0, 1))]
    found += [Contender("tolerance 0", copied(auto, 0.0, PATIENCE))]
    others = [t for t in TOLERANCES if t != TOLERANCE]
    found += [Contender(f"tolerance {t}", copied(auto, t, PATIENCE)) for t in others]
    found += [Contender(f"tolerance {TOLERANCE}, eager", copied(auto, TOLERANCE, 1))]
    found += [Contender("`analytic`, 1,024 wide, tolerance 0, eager", copied(analytic, 0.0, 1))]
    found += [Contender(f"`analytic`, 1,024 wide, tolerance {TOLERANCE}", analytic)]
    return [*found, Contender(f"the default, tolerance {TOLERANCE}", auto)]


def far_from(growth: Growth, begin: int, known: int) -> Table:
    """Return how far a learner is from the exact one after a long way with its tolerance."""
    near, exact = OnlineLearner(), OnlineLearner(tolerance=0.0)
    near.apply(growth.delta(0, begin))
    start, counted = time.process_time(), 0
    for place in range(begin, known, LONG):
        counted += near.apply(growth.delta(place, place + LONG)).counted
    taken = time.process_time() - start
    exact.apply(growth.delta(0, known))
    asked, right = held_out(growth, known)
    plain = chances(exact, asked)
    said = chances(near, asked)
    rows = [
        ["tolerance 0, all at once", *differences(plain, plain, right)],
        [f"tolerance {TOLERANCE}, step by step", *differences(said, plain, right)],
    ]
    steps = (known - begin) // LONG
    return Table(
        f"From {begin:,} nodes to {known:,} in deltas of {LONG:,}",
        ("learner", *MEASURES),
        rows,
        (
            f"a delta took {taken / steps:.2f} CPU seconds and counted {counted / steps:,.0f} "
            "nodes, on the mean.",
        ),
    )


MEASURES = (
    "held-out labels, %", "same answer, %", "largest difference", "mean difference"
)  # fmt: skip


def differences(found: Tensor, exact: Tensor, right: Tensor) -> list[str]:
    """Return accuracy, and how far probabilities are from those of the exact learner."""
    apart = (found - exact).abs()
    alike = (found.argmax(1) == exact.argmax(1)).float().mean()
    accuracy = (found.argmax(1) == right).float().mean()
    return [
        f"{100 * accuracy:.2f}", f"{100 * alike:.2f}", f"{apart.max():.4f}",
        f"{apart.amax(1).mean():.5f}",
    ]  # fmt: skip


def held_out(growth: Growth, stop: int) -> tuple[Tensor, Tensor]:
    """Return the nodes that nobody was told the labels of, and these labels."""
    asked = growth.order[:stop]
    asked = asked[growth.hidden[asked]]
    return asked, growth.graph.labels[asked]


def chances(learner: OnlineLearner, asked: Tensor) -> Tensor:
    """Return probabilities, a column for every class of the graph by its number."""
    names, found = learner.predict_proba(asked.tolist())
    columns = torch.tensor([int(name) for name in names])
    table = torch.zeros(len(asked), int(columns.max()) + 1)
    table[:, columns] = found
    return table


class Stopwatch:
    """CPU seconds of the parts of a learner."""

    PARTS = (
        ("embeddings follow", "embeddings", ("update",)),
        ("class codes follow", "codes", ("update",)),
        ("compared with what was counted", "counted", ("moved", "put", "drop")),
        ("counted", "head", ("learn", "move", "forget")),
        ("vectors looked up", "", ("of",)),
        ("solved, and weighed on nodes held back", "head", ("weigh", "settle")),
    )

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def watch(self, learner: OnlineLearner) -> None:
        """Measure from now on."""
        knowledge = learner._knowledge
        for title, part, methods in self.PARTS:
            owner = getattr(knowledge, part) if part else knowledge
            for name in methods:
                setattr(owner, name, self._timed(title, getattr(owner, name)))

    def _timed(self, title: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds[title] += time.process_time() - start

        return measured

    def table(self, contender: Contender, deltas: int) -> Table:
        """Return where a delta's time goes."""
        whole = sum(contender.seconds)
        parts = {title: self.seconds[title] for title, _, _ in self.PARTS}
        parts["all else: graph, labels, the page that readers see"] = whole - sum(parts.values())
        rows: list[Sequence[str]] = [
            (title, ms(spent / deltas), f"{100 * spent / whole:.0f} %")
            for title, spent in parts.items()
        ]
        rows.append(("a delta", ms(whole / deltas), "100 %"))
        return Table(f"Where the time goes, {contender.name}", ("part", "CPU ms", "share"), rows)


if __name__ == "__main__":
    run("tolerance", "Counted again only where it moved", main)
