"""What comes next is shown to the evaluator, and kept for the task itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evergraph.graphs import Graph
from evergraph.streams import GraphStream

# A ring of 18 nodes, classes of six: three tasks of one class; a node's feature is its number.
RING = Graph.from_edges(
    torch.stack([torch.arange(18), torch.arange(18).roll(1)]),
    features=torch.arange(18.0).unsqueeze(1),
    labels=torch.arange(18) // 6,
    undirected=True,
)


def stream_of(**options: Any) -> GraphStream:
    return GraphStream(RING, classes_per_task=1, **options)


def test_what_comes_next_is_shown() -> None:
    stream = stream_of()
    (exam,) = stream.preview(0, "local")
    assert exam.graph is stream.local_graph(1)
    assert exam.graph.features[:, 0].tolist() == list(range(6, 12))
    assert exam.graph.features[exam.nodes, 0].long().equal(stream.splits[1].test)
    assert set(exam.tasks.tolist()) == set(exam.labels.tolist()) == {1}
    assert set(exam.graph.labels.tolist()) == {-1}
    # Global shows everything with it.
    stream = stream_of()
    (exam,) = stream.preview(0, "global", "validation")
    assert exam.graph.features[:, 0].tolist() == list(range(12))
    wanted = torch.cat([split.validation for split in stream.splits[:2]])
    assert exam.graph.features[exam.nodes, 0].long().equal(wanted.sort().values)
    assert set(exam.tasks.tolist()) == {0, 1}


@pytest.mark.parametrize("known", ["nowhere", "global", "everywhere"])
@pytest.mark.parametrize("edges", ["within", "all"])
@pytest.mark.parametrize("testing", ["local", "global"])
def test_no_label_of_what_comes_is_shown_wherever_labels_are_known(
    testing: Any, edges: Any, known: Any
) -> None:
    stream = stream_of(edges=edges, known_labels=known)
    for index in (0, 1):
        (exam,) = stream.preview(index, testing)
        shown = exam.graph.features[exam.graph.labels >= 0, 0].long()
        seen = torch.cat([split.train for split in stream.splits[: index + 1]])
        told = testing == "global" and known != "nowhere"
        assert shown.equal(seen if told else seen[:0])  # training nodes of the past, no others
        assert exam.graph.labels[exam.graph.labels >= 0].equal(RING.labels[shown])


@pytest.mark.parametrize("testing", ["local", "global"])
def test_nothing_follows_the_last_task(testing: Any) -> None:
    assert stream_of().preview(2, testing) == []


def test_the_graph_previewed_is_the_one_learned_and_tested_on_next() -> None:
    stream = stream_of(edges="all")
    (exam,) = stream.preview(0, "global")
    assert stream.open(1).graph.structure is exam.graph.structure
    assert stream.exams(1, "global")[0].graph.structure is exam.graph.structure
