"""On no kind of graph does the mixture fall behind the best of its heads."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from evergraph.closed_form import ViewFeatures
from evergraph.closed_form.view_features import VIEWS
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.methods import Auto
from evergraph.streams import GraphStream
from evergraph.training import Trainer

WIDTH, SPLITS = 512, 3
MOST_BEHIND = 0.01
SPLIT = (0.4, 0.2, 0.4)  # many test nodes: the smaller the point, the more of them it takes
TELLING, USELESS = 0.3, 10.0  # noise around class centres of length 1, in each of 64 features

# homophily, noise, classes, nodes
GRAPHS = [
    (0.1, TELLING, 2, 2000),
    (0.1, TELLING, 5, 3000),
    (0.1, TELLING, 20, 3000),
    (0.1, USELESS, 2, 2000),
    (0.1, USELESS, 10, 3000),
    (0.3, TELLING, 3, 1000),
    (0.3, TELLING, 10, 2000),
    (0.3, TELLING, 50, 3000),
    (0.3, USELESS, 5, 3000),
    (0.3, USELESS, 20, 3000),
    (0.5, TELLING, 4, 1000),
    (0.5, TELLING, 30, 3000),
    (0.5, USELESS, 2, 2000),
    (0.5, USELESS, 10, 3000),
    (0.7, TELLING, 10, 2000),
    (0.7, USELESS, 5, 3000),
    (0.7, USELESS, 50, 3000),
    (0.9, TELLING, 6, 1000),
    (0.9, USELESS, 8, 2000),
    (0.9, USELESS, 40, 3000),
]


def graph_of(homophily: float, noise: float, classes: int, nodes: int) -> Graph:
    return load("synthetic", homophily=homophily, noise=noise, classes=classes, nodes=nodes)


def balanced_accuracy(graph: Graph, views: Sequence[str], seed: int) -> float:
    """Learn half of the classes after the other half; test all in the graph of everything."""
    stream = GraphStream(
        graph, edges="all", classes_per_task=-(-graph.num_classes // 2), split=SPLIT, seed=seed
    )
    learner = Auto(
        refresh="embeddings",
        backbone=ViewFeatures(views=views, width=WIDTH),
        trainer=Trainer(device="cpu"),
        generator=seeded(seed, "learner"),
    )
    for task in stream:
        learner.fit_task(task)
    (exam,) = stream.exams(len(stream) - 1, "global")
    right = learner.logits(exam.graph, exam.nodes).argmax(1) == exam.labels
    means = [right[exam.labels == label].float().mean() for label in exam.labels.unique()]
    return float(torch.stack(means).mean())


def results(*knobs: Any) -> dict[str, float]:
    """Return the balanced accuracy of all views and of each alone, a mean over splits."""
    graph = graph_of(*knobs)
    asked = {"auto": VIEWS} | {view: [view] for view in VIEWS}
    return {
        name: sum(balanced_accuracy(graph, views, seed) for seed in range(SPLITS)) / SPLITS
        for name, views in asked.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("homophily", "noise", "classes", "nodes"), GRAPHS)
def test_auto_is_near_the_best(homophily, noise, classes, nodes):
    found = results(homophily, noise, classes, nodes)
    mixed = found.pop("auto")
    best = max(found, key=lambda view: found[view])
    assert mixed >= found[best] - MOST_BEHIND, f"{mixed:.4f}, but {best} {found[best]:.4f} alone"
