"""Learners of ``auto`` narrow enough to be made in a moment, and tasks without some nodes."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from evergraph.closed_form import ViewFeatures
from evergraph.core.seeding import seeded
from evergraph.graphs import UNLABELLED, Graph
from evergraph.methods import Auto
from evergraph.streams import GraphStream, Task
from evergraph.streams.task import Lease
from evergraph.training import Trainer

VIEWS = ("0|1|2+y", "0", "y", "2")


def auto(*views: str, width: int = 48, seed: int = 0, **options: Any) -> Auto:
    if "backbone" not in options:
        options["backbone"] = ViewFeatures(views=views or VIEWS, width=width, code_width=16)
    options.setdefault("budget", 0)  # sums alone, unless a test is about what is kept beside them
    return Auto(trainer=Trainer(device="cpu"), generator=seeded(seed, "learner"), **options)


def learned(stream: GraphStream, *views: str, **options: Any) -> Auto:
    learner = auto(*views, **options)
    for task in stream:
        learner.fit_task(task)
    return learner


def scores_of(learner: Auto, graph: Graph) -> Tensor:
    return learner.logits(graph, torch.arange(graph.num_nodes))


def final_graph(stream: GraphStream) -> Graph:
    """Return the graph of everything; it shows training labels."""
    graph = stream.exams(len(stream) - 1, "global")[0].graph
    assert graph.bare is not None
    return graph


def accuracy(learner: Auto, stream: GraphStream, scope: Any = "global") -> float:
    """Return the share of right answers in the only exam after the last task."""
    (exam,) = stream.exams(len(stream) - 1, scope)
    answers = learner.logits(exam.graph, exam.nodes).argmax(1)
    return float((answers == exam.labels).float().mean())


def only(task: Task, part: str, keep: Tensor) -> Task:
    """Return the task with some of its training or validation nodes alone."""
    names = (part, f"{part}_labels")
    return replace(task, **{name: getattr(task, name)[keep] for name in names})


def never_labelled(task: Task, gone: Tensor) -> Task:
    """Return the task as it is if some nodes of its graph have no label.  gone: bool [nodes]"""
    shown = task.graph.labels.masked_fill(gone, UNLABELLED)
    rest = replace(task, lease=Lease(task.graph.structure.showing(shown)))
    for part in ("train", "validation"):
        rest = only(rest, part, ~gone[getattr(task, part)])
    return rest


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Compare values each to its own size."""
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
