"""What makes ``hpn`` what it is, and what would be lost without it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph
from evergraph.methods import HPN
from evergraph.nn import GCN, PrototypeNetwork
from evergraph.streams import GraphStream


def small(**options: Any) -> PrototypeNetwork:
    return PrototypeNetwork(
        **{"hops": 1, "extractors": 4, "widths": (8, 16, 16), "dropout": 0.0} | options
    )


def learned(learner: HPN, graph: Graph, tasks: int = 2, **stream: Any) -> GraphStream:
    whole = GraphStream(graph, **stream)
    for index in range(tasks):
        learner.fit_task(whole.open(index))
    return whole


def accuracy(learner: HPN, stream: GraphStream, task: int) -> float:
    exam = stream.exams(len(stream) - 1, "local")[task]
    graph = exam.graph
    known = learner.predict(graph, exam.nodes, exam.tasks)
    return float((known == torch.tensor(learner.classes)[exam.labels]).float().mean())


def twins() -> Graph:
    """Four classes of five nodes; those of the second task look like those of the first."""
    labels = torch.arange(4).repeat_interleave(5)
    edges = torch.tensor([[5 * c + i, 5 * c + i + 1] for c in range(4) for i in range(4)]).t()
    return Graph.from_edges(edges, features=torch.eye(2)[labels % 2], labels=labels)


def test_prototypes_of_an_earlier_task_are_reused_by_one_that_looks_the_same(
    make: Any, two_pairs: Graph
) -> None:
    sizes = []
    for graph in (twins(), two_pairs):
        learner = make("hpn", lr=0.0, backbone=small(), atomic_threshold=0.9)
        found = []
        for task in GraphStream(graph):
            learner.fit_task(task)
            found.append([len(t) for t in (learner.head.atoms, learner.head.nodes)])
        sizes.append(found)
    assert sizes[0][0] == sizes[0][1]  # nothing new to see
    assert sizes[1][0] < sizes[1][1]  # other features: new atoms, new nodes


def test_thresholds_decide_how_many_prototypes_there_are(make: Any, two_pairs: Graph) -> None:
    counts = []
    for threshold in (-1.0, 0.5, 0.99):
        names = ("atomic_threshold", "node_threshold", "class_threshold")
        learner = make("hpn", lr=0.0, backbone=small(), **dict.fromkeys(names, threshold))
        learned(learner, two_pairs)
        head = learner.head
        counts.append([len(head.atoms), len(head.nodes), len(head.classes)])
    assert counts[0] == [1, 1, 1]
    assert counts[0][0] < counts[1][0] < counts[2][0]
    assert counts[1][1] <= counts[2][1]


def by_neighbour() -> Graph:
    """Pairs p - q: every p looks the same, and q, which looks like its class, tells p's."""
    labels = (torch.arange(40) // 2 % 2).long()
    features = torch.zeros(40, 3)
    features[0::2, 2] = 1.0  # p
    features[1::2] = torch.eye(3)[labels[1::2]]  # q
    edges = torch.arange(40).view(20, 2).t()
    return Graph.from_edges(edges, features=features, labels=labels, undirected=True)


def test_neighbours_attributes_are_extracted_by_the_extractors_of_structure(make: Any) -> None:
    learner = make("hpn", epochs=60, lr=0.02, backbone=small())
    learned(learner, by_neighbour(), tasks=1)
    graph = by_neighbour()
    assert learner.predict(graph).equal(graph.labels)
    with torch.no_grad():
        learner.head.structure.weight.zero_()
    right = learner.predict(graph) == graph.labels
    assert float(right[0::2].float().mean()) == 0.5  # no p is told from another


def test_extractors_rest_after_the_first_task_unless_always_refined(
    make: Any, two_pairs: Graph
) -> None:
    moved = []
    for refine in ("first", "always"):
        learner = make("hpn", backbone=small(), refine=refine)
        stream = GraphStream(two_pairs)
        learner.fit_task(stream.open(0))
        before = learner.head.own.weight.detach().clone()
        learner.fit_task(stream.open(1))
        moved.append(not learner.head.own.weight.equal(before))
    assert moved == [False, True]


def test_rehearsed_prototypes_keep_old_classes_in_class_il(make: Any, two_pairs: Graph) -> None:
    kept = []
    for rehearse in (True, False):
        learner = make("hpn", epochs=60, lr=0.02, backbone=small(), rehearse=rehearse)
        stream = learned(learner, two_pairs)
        kept.append([accuracy(learner, stream, task) for task in (0, 1)])
    assert kept[0] == [1.0, 1.0]
    assert kept[1][0] <= 0.5


def test_classes_of_training_nodes_are_counted_by_prototype(make: Any, two_pairs: Graph) -> None:
    learner = make("hpn", backbone=small())
    stream = learned(learner, two_pairs)
    trained = sum(len(stream.open(index).train) for index in (1,))
    assert learner.head.counts.shape == (4, len(learner.head.nodes))
    assert float(learner.head.counts[2:].sum()) == trained
    assert learner.usage.samples == learner.head.atoms.numel()


def test_embeddings_are_drawn_to_prototypes_and_extractors_apart(
    make: Any, two_pairs: Graph
) -> None:
    distances, alike = [], []
    for strength in (0.0, 10.0):
        options = {"distance_strength": strength, "divergence_strength": strength}
        learner = make("hpn", epochs=30, lr=0.02, backbone=small(), **options)
        stream = learned(learner, two_pairs, tasks=1)
        rows = learner.backbone.prepare(stream.open(0).graph)
        head = learner.head
        distances.append(head.levels(head.extracted(rows)).distance.item())
        alike.append(head.divergence().item())
    assert distances[1] < distances[0]
    assert alike[1] < alike[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": GCN()}, "use 'prototypes', not 'gcn'"),
        ({"atomic_threshold": 1.5}, "atomic_threshold must be a number from -1.0 to 1.0, not 1.5"),
        ({"capacity": 0}, "capacity must be an integer of at least 1, not 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make("hpn", **options)
