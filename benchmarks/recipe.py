"""Which recipe to make the default of ``tem``: a random search on validation data.

    python benchmarks/recipe.py --configurations 150 --device cuda

Writes a line of JSON for every configuration as it is done, best last when sorted by the mean
over graphs; test nodes are never looked at. Decision record 2 shows what it found.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from benchmarks.graphs import CASES

from evergraph.core.seeding import seeded
from evergraph.evaluation.accuracy_matrix import average_accuracy, matrix_of
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph
from evergraph.methods import TEM
from evergraph.nn import PDGNN
from evergraph.streams import GraphStream
from evergraph.training import Trainer

GRAPHS = ("wordnet", "computers", "coauthor-cs")


def configurations(count: int, *, seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield random (training, head) options; few epochs of small batches, or many of full ones."""
    draw = random.Random(seed).choice
    for _ in range(count):
        batch_size = draw([None, 256, 512, 1024, 2048])
        training = {
            "batch_size": batch_size,
            "epochs": draw([50, 100, 200]) if batch_size is None else draw([5, 10, 20, 30]),
            "lr": draw([0.001, 0.002, 0.005, 0.01]),
            "schedule": draw(["constant", "cosine"]),
            "momentum": draw(["carried", "fresh"]),
            "weight_decay": draw([0.0, 0.0, 1e-5, 1e-4]),
        }
        yield training, {"hidden": draw([(256,), (512,)]), "dropout": draw([0.0, 0.3, 0.5])}


def validate(
    graph: Graph, training: dict[str, Any], head: dict[str, Any], device: str
) -> dict[str, float]:
    """Return class-IL balanced AA on validation nodes in percent, by way of testing."""
    trainer = Trainer(device=device, **training)
    learner = TEM(backbone=PDGNN(**head), trainer=trainer, generator=seeded(0, "learner"))
    reports = list(learn_stream(learner, GraphStream(graph), part="validation"))
    rows = {way: [r.rows[way]["balanced"] for r in reports] for way in ("local", "global")}
    return {way: round(100 * average_accuracy(matrix_of(row)), 1) for way, row in rows.items()}


def main() -> None:
    """Search."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--configurations", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    graphs = {name: CASES[name].load() for name in GRAPHS if CASES[name].missing is None}
    for training, head in configurations(options.configurations, seed=options.seed):
        found = {name: validate(g, training, head, options.device) for name, g in graphs.items()}
        print(json.dumps({"training": training, "head": head, "found": found}), flush=True)


if __name__ == "__main__":
    main()
