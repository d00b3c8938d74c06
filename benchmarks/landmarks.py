"""Landmarks by the sampler that chooses them, and in a live learner beside random features.

python benchmarks/landmarks.py [--quick] [--out benchmarks/results] [--threads N] [--workers N]
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from benchmarks.every_graph import GRAPHS, Job, measured
from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, run
from torch import Tensor

from evergraph.closed_form.landmarks import LandmarkFeatures, column_weights
from evergraph.core.seeding import seeded
from evergraph.memory.samplers import Candidates, samplers
from evergraph.methods import Auto
from evergraph.online import Delta
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner

SAMPLERS = ("uniform", "coverage", "greedy-coverage", "herding", "k-centre")
WIDTHS = (128, 512)  # landmarks; with more of them the choice matters less
HEADS: dict[str, dict[str, Any]] = {
    "landmarks": {},
    "random features": {"basis": "random", "width": 512, "regularisation": 0.01},
}
SHARES = (0.8, 0.05)  # of the nodes whose labels a live learner is told
SEEDS = (0, 1)


def chosen_by(name: str, learner: Auto, seen: Any, ids: Tensor, guesses: Any) -> None:
    """Choose as many landmarks of each class as ``auto`` does, by a sampler of memories."""
    OWN(learner, seen, ids, guesses)
    backbone, entries = learner.backbone, learner.ledger_.part("train")
    assert isinstance(backbone, LandmarkFeatures)
    places = torch.searchsorted(ids, entries.ids)
    rows = learner._with_codes(seen).of(places)
    graph = next(g for g, known in backbone._prepared.items() if known is seen)
    shown = rows.taken(torch.device("cpu")).hops.float()
    budgets = dict(enumerate(torch.bincount(learner.landmarks_.labels_).tolist()))
    candidates = Candidates(graph, places, entries.labels, shown, hops=2, known_as=entries.ids)
    found = samplers.make(name).select(candidates, budgets, generator=seeded(0, "landmarks"))
    learner.landmarks_.clear()
    kept = learner._with_codes(seen).of(places[found]).taken(torch.device("cpu"))
    learner.landmarks_._extend(kept, entries.labels[found], entries.ids[found])
    columns = column_weights(rows, entries.labels, dims=learner._dims)
    backbone.stand_on(learner.landmarks_.rows(), columns)


OWN = Auto._choose_landmarks


def of_sampler(graph: str, seed: int, width: int, name: str) -> float:
    """Return the balanced accuracy on validation nodes with landmarks chosen by a sampler."""
    values = {
        "method": {"name": "auto", "refresh": "embeddings", "self_training": False},
        "backbone": {"name": "landmark-features", "width": width},
        "part": "validation",
    }
    with patch.object(Auto, "_choose_landmarks", lambda *given: chosen_by(name, *given)):
        return measured(Job("once", graph, "global", seed, values)).accuracy


def of_head(graph: str, seed: int, share: float, name: str) -> tuple[float, float, float]:
    """Return accuracy and balanced accuracy of a live learner, and its CPU seconds."""
    whole = CASES[graph].load()
    told = torch.rand(whole.num_nodes, generator=seeded(seed, "told")) < share
    pairs = zip(told.tolist(), whole.labels.tolist(), strict=True)
    ends = torch.repeat_interleave(torch.arange(whole.num_nodes), whole.indptr.diff().long())
    edges = torch.stack([ends, whole.indices.long()], 1)[ends <= whole.indices]
    features = whole.features
    delta = Delta(
        nodes=range(whole.num_nodes),
        features=features if features.layout == torch.strided else features.to_dense(),
        labels=[label if known and label >= 0 else None for known, label in pairs],
        edges=[*map(tuple, edges.tolist())],
    )
    learner, start = OnlineLearner(head=FusedHead(**HEADS[name])), time.process_time()
    learner.apply(delta)
    taken = time.process_time() - start
    asked = (~told & (whole.labels >= 0)).nonzero().flatten()
    right = whole.labels[asked]
    hits = torch.tensor(learner.predict(asked.tolist())).eq(right).double()
    by_class = [float(hits[right == label].mean()) for label in right.unique()]
    return 100 * float(hits.mean()), 100 * mean(by_class), taken


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    graphs = ["synthetic-500"] if options.quick else [g for g in GRAPHS if not CASES[g].missing]
    widths, shares = (WIDTHS[:1], SHARES[:1]) if options.quick else (WIDTHS, SHARES)
    seeds = SEEDS[:1] if options.quick else SEEDS
    context, threads = multiprocessing.get_context("spawn"), (torch.get_num_threads(),)
    with context.Pool(options.workers, torch.set_num_threads, threads) as pool:
        asked: dict[tuple[Any, ...], Any] = {}
        for measure, names, values in (of_head, HEADS, shares), (of_sampler, SAMPLERS, widths):
            for given in product(graphs, seeds, values, names):
                asked[(measure.__name__, *given)] = pool.apply_async(measure, given)
        known = {key: each.get() for key, each in asked.items()}

    def row(measure: Callable[..., Any], value: float, name: str) -> list[list[Any]]:
        return [[known[measure.__name__, g, s, value, name] for s in seeds] for g in graphs]

    chosen = [
        (f"{width}, {name}", *(f"{mean(found):.1f}" for found in row(of_sampler, width, name)))
        for width in widths
        for name in SAMPLERS
    ]
    live = [
        (f"{share:.0%} told, {name}", *map(_live_cell, row(of_head, share, name)))
        for share in shares
        for name in HEADS
    ]
    return [
        Table(
            "Landmarks by sampler: balanced accuracy on validation nodes",
            ("landmarks, sampler", *graphs),
            chosen,
            (f"auto, tested globally, edges all, all tasks at once; mean of {len(seeds)} seeds.",),
        ),
        Table(
            "A live learner: accuracy on nodes without labels, class-balanced accuracy, CPU s",
            ("nodes told, basis", *graphs),
            live,
            (f"All nodes in one delta; mean of {len(seeds)} seeds.",),
        ),
    ]


def _live_cell(found: Sequence[tuple[float, float, float]]) -> str:
    plain, balanced, seconds = (mean(values) for values in zip(*found, strict=True))
    return f"{plain:.1f}, {balanced:.1f}, {seconds:.1f}"


if __name__ == "__main__":
    run("landmarks", "Landmarks, by sampler and live", tables)
