"""How many labels a learner needs when it says itself which nodes to ask about.

python benchmarks/asking.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, run

from evergraph.core.seeding import seeded
from evergraph.evaluation.yardstick import balanced_accuracy, plain_accuracy
from evergraph.graphs import Graph
from evergraph.online import Delta
from evergraph.online.learner import OnlineLearner

SEEDS = 3
POOL, REST = 0.6, 0.8  # of the nodes are those that may be asked about, and those before the tested
TARGETS = {"wordnet": 0.70, "computers": 0.85, "synthetic-500": 0.95}
ROUNDS = {
    "wordnet": (100, 200, 400, 700, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 12_000,
                16_000),
    "computers": (20, 50, 100, 200, 300, 500, 800, 1_200, 2_000),
    "synthetic-500": (10, 30, 60, 100),
}  # fmt: skip
RANDOM, OURS = "random", "suggest"
FIGURE = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "asking.png"


@dataclass(frozen=True)
class Curve:
    """How good a learner is after each round of asking: shares of the tested nodes."""

    labels: tuple[int, ...]
    plain: tuple[float, ...]
    balanced: tuple[float, ...]


def main(options: Options) -> list[Table]:
    """Measure everything."""
    names = ("synthetic-500",) if options.quick else ("wordnet", "computers")
    present = [name for name in names if CASES[name].missing is None]
    curves = {name: measured(name, 1 if options.quick else SEEDS) for name in present}
    if options.out is not None and not options.quick:
        draw(curves, FIGURE)
    pairs = [(table_of(name, curves[name]), needed(curves[name], name)) for name in present]
    return [table for pair in pairs for table in pair]


def measured(name: str, seeds: int) -> dict[str, list[Curve]]:
    """Ask in both ways, one seed after the other."""
    graph = CASES[name].load()
    return {
        way: [asked(graph, way, ROUNDS[name], TARGETS[name], seed) for seed in range(seeds)]
        for way in (RANDOM, OURS)
    }


def asked(graph: Graph, way: str, rounds: Sequence[int], target: float, seed: int) -> Curve:
    """Ask for labels round by round, until well past the target; return how good each left it.

    All nodes and edges are there from the beginning, without labels.
    """
    order = torch.randperm(graph.num_nodes, generator=seeded(seed, "split"))
    order = order[graph.labels[order] >= 0]
    pool, tested = order[: int(POOL * len(order))], order[int(REST * len(order)) :]
    learner = OnlineLearner(seed=seed)
    learner.apply(everything(graph))
    given, found = 0, []
    for count in rounds:
        nodes = next_nodes(learner, pool, given, count - given, way)
        learner.apply(Delta(late=[(node, int(graph.labels[node])) for node in nodes]))
        given = count
        predicted = torch.tensor(learner.predict(tested.tolist()))
        right = graph.labels[tested]
        found.append((count, plain_accuracy(predicted, right), balanced_accuracy(predicted, right)))
        if found[-1][1] > target + 0.03:
            break
    return Curve(*(tuple(column) for column in zip(*found, strict=True)))


def next_nodes(learner: OnlineLearner, pool: Tensor, given: int, count: int, way: str) -> list[int]:
    """Return whom to ask about next; the pool is in random order."""
    if way == RANDOM:
        return pool[given : given + count].tolist()
    return [int(found.id) for found in learner.suggest(count, among=pool.tolist())]


def everything(graph: Graph) -> Delta:
    """Return a graph as one delta without labels."""
    targets = torch.arange(graph.num_nodes).repeat_interleave(graph.indptr.diff())
    once = targets <= graph.indices
    features = graph.features
    return Delta(
        nodes=range(graph.num_nodes),
        features=features if features.layout == torch.strided else features.to_dense(),
        labels=(None,) * graph.num_nodes,
        edges=list(zip(graph.indices[once].tolist(), targets[once].tolist(), strict=True)),
    )


def table_of(name: str, curves: dict[str, list[Curve]]) -> Table:
    """Return both curves side by side, up to where one of them ends in any seed."""
    rows = []
    for place, count in enumerate(ROUNDS[name]):
        cells = [f"{count:,}"]
        for way in (RANDOM, OURS):
            there = [curve for curve in curves[way] if len(curve.labels) > place]
            whole = len(there) == len(curves[way])
            for measure in ("plain", "balanced"):
                shares = [100 * getattr(curve, measure)[place] for curve in there]
                cells.append(spread(shares) if whole else "")
        if any(cells[1:]):
            rows.append(cells)
    columns = ("labels", "random, plain %", "random, balanced %", "suggest, plain %",
               "suggest, balanced %")  # fmt: skip
    seeds = len(curves[RANDOM])
    return Table(
        f"{name}: accuracy on test nodes after so many labels",
        columns,
        rows,
        (
            f"Mean over {seeds} seeds (split, asking at random, head), and from the lowest to the "
            "highest. All nodes and edges are known from the beginning; 60 % may be asked about, "
            "20 % are tested, and 20 % served to choose the rule. A way ends once it is 3 points "
            "past the target in a seed.",
        ),
    )


def needed(curves: dict[str, list[Curve]], name: str) -> Table:
    """Return how many labels each way needs for the target, between two rounds in a line."""
    target = TARGETS[name]
    counts = {way: [labels_for(curve, target) for curve in curves[way]] for way in curves}
    rows = [
        [way, *(f"{count:,.0f}" if count else "not reached" for count in found)]
        for way, found in counts.items()
    ]
    pairs = zip(counts[OURS], counts[RANDOM], strict=True)
    ratios = [f"{ours / other:.2f}x" if ours and other else "" for ours, other in pairs]
    columns = ("way", *(f"seed {seed}" for seed in range(len(ratios))))
    title = f"{name}: labels needed for {100 * target:.0f} % plain accuracy"
    return Table(title, columns, [*rows, ["suggest / random", *ratios]])


def labels_for(curve: Curve, target: float) -> float | None:
    """Return after how many labels a curve first is at a target; None if it never is.

    >>> labels_for(Curve((10, 20), (0.4, 0.6), (0, 0)), 0.5)
    15.0
    """
    before = (0, 0.0)
    for count, share in zip(curve.labels, curve.plain, strict=True):
        if share >= target:
            part = (target - before[1]) / (share - before[1])
            return round(before[0] + part * (count - before[0]), 6)
        before = (count, share)
    return None


def spread(shares: Sequence[float]) -> str:
    """Return a mean, and in brackets the lowest and the highest if there are several."""
    mean = f"{fmean(shares):.1f}"
    return mean if len(shares) == 1 else f"{mean} ({min(shares):.1f} to {max(shares):.1f})"


def draw(curves: dict[str, dict[str, list[Curve]]], path: Path) -> None:
    """Draw the curves of all graphs, mean and range over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(4.6 * len(curves), 3.4), squeeze=False)
    for axis, (name, ways) in zip(axes[0], curves.items(), strict=True):
        for way, colour in ((RANDOM, "#8a94a3"), (OURS, "#00629b")):
            length = min(len(curve.labels) for curve in ways[way])
            labels = ways[way][0].labels[:length]
            shares = [[100 * curve.plain[i] for curve in ways[way]] for i in range(length)]
            axis.plot(labels, [fmean(part) for part in shares], color=colour, label=way, marker="o",
                      markersize=3)  # fmt: skip
            low, high = [min(part) for part in shares], [max(part) for part in shares]
            axis.fill_between(labels, low, high, color=colour, alpha=0.2, linewidth=0)
        axis.axhline(100 * TARGETS[name], color="#b3261e", linewidth=0.8, linestyle="--")
        axis.set(xscale="log", title=name, xlabel="labels", ylabel="accuracy on test nodes, %")
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    run("asking", "What to label next", main)
