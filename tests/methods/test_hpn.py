"""What makes ``hpn`` what it is, and what would be lost without it."""

from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from evergraph.graphs import Graph
from evergraph.methods import HPN
from evergraph.nn import PrototypeNetwork
from evergraph.streams import GraphStream, Task


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


def test_prototypes_are_reused_by_a_task_that_looks_the_same(make, two_pairs):
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


@pytest.mark.parametrize("low", ["atomic", "node", "class"])
def test_every_level_has_a_threshold_of_its_own(make, small_graph, low):
    high = dict.fromkeys(("atomic_threshold", "node_threshold", "class_threshold"), 0.999)
    learner = make("hpn", lr=0.0, backbone=small(), **high | {f"{low}_threshold": -1.0})
    learned(learner, small_graph, tasks=1)
    head = learner.head
    sizes = {"atomic": len(head.atoms), "node": len(head.nodes), "class": len(head.classes)}
    assert sizes.pop(low) == 1  # whatever comes is near enough
    if low == "class":
        assert min(sizes.values()) > 1


def by_neighbour() -> Graph:
    """Pairs p - q: every p looks the same, and q, which looks like its class, tells p's."""
    labels = (torch.arange(40) // 2 % 2).long()
    features = torch.zeros(40, 3)
    features[0::2, 2] = 1.0  # p
    features[1::2] = torch.eye(3)[labels[1::2]]  # q
    edges = torch.arange(40).view(20, 2).t()
    return Graph.from_edges(edges, features=features, labels=labels, undirected=True)


def test_neighbours_attributes_are_extracted_by_the_extractors_of_structure(make):
    learner = make("hpn", epochs=25, lr=0.05, backbone=small())
    learned(learner, by_neighbour(), tasks=1)
    graph = by_neighbour()
    assert learner.predict(graph).equal(graph.labels)
    with torch.no_grad():
        learner.head.structure.weight.zero_()
    right = learner.predict(graph) == graph.labels
    assert float(right[0::2].float().mean()) == 0.5  # no p is told from another


@pytest.mark.parametrize(
    ("options", "setting", "moved"),
    [
        ({"refine": "first"}, "task-il", False),
        ({"refine": "always"}, "class-il", True),
        ({}, "task-il", True),
        ({}, "class-il", False),
    ],
)
def test_extractors_are_refined_with_every_task_in_task_il_and_rest_in_class_il_unless_told(
    make, two_pairs, options, setting, moved
):
    assert moves(make("hpn", backbone=small(), **options), two_pairs, setting=setting) == moved


def moves(learner: HPN, graph: Graph, **stream: Any) -> bool:
    """Return whether the second task moves the extractors; both kinds go together."""
    learned(learner, graph, tasks=1, **stream)
    before = [extractor.weight.detach().clone() for extractor in learner.head.extractors]
    learner.fit_task(GraphStream(graph, **stream).open(1))
    moved = [not e.weight.equal(b) for e, b in zip(learner.head.extractors, before, strict=True)]
    assert len(set(moved)) == 1
    return moved[0]


def test_rehearsed_prototypes_keep_old_classes_in_class_il(make, two_pairs):
    kept = []
    for rehearse in (True, False):
        learner = make("hpn", epochs=15, lr=0.05, backbone=small(), rehearse=rehearse)
        stream = learned(learner, two_pairs)
        kept.append([accuracy(learner, stream, task) for task in (0, 1)])
    assert kept[0] == [1.0, 1.0]
    assert kept[1][0] <= 0.5


def test_classes_of_training_nodes_are_counted_by_prototype(make, two_pairs):
    learner = make("hpn", backbone=small())
    stream = learned(learner, two_pairs)
    trained = sum(len(stream.open(index).train) for index in (1,))
    assert learner.head.counts.shape == (4, len(learner.head.nodes))
    assert float(learner.head.counts[2:].sum()) == trained
    assert learner.usage.samples == learner.head.atoms.numel()


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_prototypes_from_before_training_are_made_anew_in_class_il_and_kept_in_task_il(
    make, small_graph, setting
):
    learner = make("hpn", epochs=5, lr=0.05, backbone=small(), node_threshold=0.9)
    stream = learned(learner, small_graph, tasks=1, setting=setting)
    head, task = learner.head, stream.open(1)
    earlier = head.nodes, head.classes
    learner.begin_task(task)
    begun = head.nodes, head.classes
    with torch.no_grad():  # what training would do
        head.to_node.weight.copy_(head.to_node.weight.flip(1))
        head.to_class.weight.copy_(head.to_class.weight.flip(1))
    learner.end_task(task)
    for kept, at_first, now in zip(earlier, begun, (head.nodes, head.classes), strict=True):
        assert len(kept) < len(at_first)
        assert now[: len(kept)].equal(kept)  # those of the task before stay
        assert now[: len(at_first)].equal(at_first) == (setting == "task-il")


def terms_by_hand(learner: HPN, task: Task) -> dict[str, float]:
    """Return the terms of the loss on a task that has begun, as the formulas have them."""
    head = learner.head

    def standing(found: Tensor, prototypes: Tensor) -> tuple[Tensor, Tensor]:
        cosines = cosine_similarity(found[:, None], prototypes[None], dim=2)
        best, places = cosines.max(1)
        return prototypes[places], (1 - best).mean()

    def through(atoms: Tensor) -> tuple[Tensor, Tensor]:
        nodes, classes = head.prototypes()
        a, first = standing(atoms.flatten(0, 1), head.atoms)
        a = a.view(len(atoms), -1)
        n, second = standing(head.to_node(a), nodes)
        c, third = standing(head.to_class(n), classes)
        return head.out(torch.cat([a, n, c], 1)).log_softmax(1), first + second + third

    def entropies(told: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over the classes of the mean over their nodes."""
        own = -told[torch.arange(len(told)), labels]
        return torch.stack([own[labels == c].mean() for c in labels.unique()]).mean()

    with torch.no_grad():
        rows = learner.backbone.prepare(task.graph)[task.train]
        told, distance = through(head.extracted(rows))
        terms = {"current": entropies(told, task.train_labels), "distance": distance}
        prototypes, _ = through(head.composed(head.nodes))
        shares = [row / row.sum() for row in head.counts if row.any()]  # a row for each old class
        old = [-(share @ prototypes[:, label]) for label, share in enumerate(shares)]
        terms["rehearsed"] = torch.stack(old).mean() if old else torch.zeros(())
        terms["divergence"] = torch.zeros(())
        for extractor in head.extractors:
            each = extractor.weight.view(-1, head.atomic * extractor.weight.shape[1])
            pairs = [cosine_similarity(a, b, dim=0) ** 2 for a, b in permutations(each, 2)]
            terms["divergence"] += torch.stack(pairs).mean()
    return {name: float(term) for name, term in terms.items()}


def test_the_loss_is_the_sum_of_its_terms(make, small_graph):
    # Before the third task four classes are old and two new: prototypes have 4 / 6 of the loss.
    learner = make("hpn", epochs=3, backbone=small(), node_threshold=0.9, class_threshold=0.9)
    stream = learned(learner, small_graph, tasks=2)
    learner.head.counts[0] *= 5  # as if the first class had had five times as many nodes
    task = stream.open(2)
    learner.begin_task(task)
    terms = terms_by_hand(learner, task)
    mixed = terms["current"] * 2 / 6 + terms["rehearsed"] * 4 / 6
    for beta, gamma in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.3, 0.7)):
        learner.distance_strength, learner.divergence_strength = beta, gamma
        expected = mixed + beta * terms["distance"] + gamma * terms["divergence"]
        assert learner.loss(slice(None)).item() == pytest.approx(expected, rel=1e-4)
    learner.rehearse = False
    expected = terms["current"] + 0.3 * terms["distance"] + 0.7 * terms["divergence"]
    assert learner.loss(slice(None)).item() == pytest.approx(expected, rel=1e-4)
    assert len({round(term, 2) for term in terms.values()}) == 4  # none could stand for another
