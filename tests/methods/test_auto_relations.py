"""Relations in auto's views: seen where they are, left out where not, and forgotten with nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from evergraph.closed_form import ViewFeatures
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.methods import Auto, load_learner
from evergraph.streams import GraphStream
from evergraph.streams.task import Lease
from evergraph.training import Trainer

NODES = 160


def auto(*views: str, width: int = 96, **options: Any) -> Auto:
    backbone = ViewFeatures(views=views or ("0|1|2|r+y", "0|1|2|r"), width=width, code_width=16)
    return Auto(
        backbone=backbone, trainer=Trainer(device="cpu"), generator=seeded(0, "learner"), **options
    )


def graph_of(*, related: bool = True, typed: bool = False) -> Graph:
    """Return nodes whose class is the relation that joins them to one of two anchors."""
    drawn = seeded(0, "anchors and friends")
    kinds = torch.arange(NODES) % 2
    anchors = torch.randint(4, (NODES,), generator=drawn)
    ends = torch.stack([anchors, torch.arange(NODES) + 4])
    features = torch.randn(NODES + 4, 6, generator=drawn)
    labels = torch.cat([torch.full((4,), -1), kinds])
    if typed:  # nothing else tells
        ends, features = ends[:, :0], torch.ones(NODES + 4, 1)
    graph = Graph.from_edges(ends, features=features, labels=labels, undirected=True)
    numbers = torch.cat([torch.zeros(4).long(), kinds]).short()
    if typed:
        return graph.with_types(NodeTypes(("here", "there"), numbers))
    relations = Relations.of(ends, kinds, ("likes", "hates"), nodes=NODES + 4)
    return graph.with_relations(relations) if related else graph


def learned(graph: Graph, *views: str, **options: Any) -> tuple[Auto, GraphStream]:
    stream, learner = GraphStream(graph, unlabelled="along"), auto(*views, **options)
    for task in stream:
        learner.fit_task(task)
    return learner, stream


def accuracy(learner: Auto, stream: GraphStream) -> float:
    (exam,) = stream.exams(len(stream) - 1, "local")
    answers = learner.logits(exam.graph, exam.nodes).argmax(1)
    return float((answers == exam.labels).float().mean())


def every_score(learner: Auto, stream: GraphStream) -> Tensor:
    graph = stream.open(0).graph
    return learner.logits(graph, torch.arange(graph.num_nodes))


def test_classes_that_only_relations_tell_are_learned() -> None:
    assert accuracy(*learned(graph_of())) > 0.9
    assert accuracy(*learned(graph_of(related=False))) < 0.7


def test_types_tell_without_an_edge() -> None:
    assert accuracy(*learned(graph_of(typed=True))) == 1.0


def test_without_relations_r_is_nothing() -> None:
    plain, stream = learned(graph_of(related=False), "0|1|2+y", "0|1|2")
    same, _ = learned(graph_of(related=False), "0|1|2|r+y", "0|1|2|r")
    assert every_score(plain, stream).equal(every_score(same, stream))
    with pytest.raises(ConfigurationError, match="need a graph with relations or node types"):
        learned(graph_of(related=False), "r")


def test_a_saved_learner_still_sees_relations(tmp_path: Path) -> None:
    learner, stream = learned(graph_of())
    learner.save(tmp_path / "model.eg")
    loaded = load_learner(tmp_path / "model.eg")
    assert isinstance(loaded, Auto)
    assert every_score(loaded, stream).equal(every_score(learner, stream))


def test_forgetting_is_never_having_learned() -> None:
    task = GraphStream(graph_of(), unlabelled="along").open(0)
    learner, never = auto(ledger=True), auto(ledger=True)
    learner.fit_task(task)
    gone = torch.zeros(task.graph.num_nodes, dtype=torch.bool)
    gone[task.train[::3]] = True
    learner.forget(task.ids[gone], task.graph, known_as=task.ids)
    shown = task.graph.structure.showing(task.graph.labels.masked_fill(gone, -1))
    keep = ~gone[task.train]
    rest = replace(
        task, train=task.train[keep], train_labels=task.train_labels[keep], lease=Lease(shown)
    )
    never.fit_task(rest)
    nodes = torch.arange(shown.num_nodes)
    scores = [one.logits(shown, nodes) for one in (learner, never)]
    torch.testing.assert_close(*scores, atol=1e-3, rtol=1e-3)


def test_probes_keep_what_comes_along_relations() -> None:
    learner, _ = learned(graph_of())
    assert learner.probes_.relations_.shape == (len(learner.probes_), 3 * 256)
    assert learner.probes_.codes_.shape[1] == 3 * 16
