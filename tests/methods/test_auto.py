"""Who answers, who is let go, and what the validation nodes are that decide it."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.methods import Auto
from evergraph.methods.probes import Probes
from evergraph.nn import GCN, PDGNN, RandomFeatures
from evergraph.online.heads.method import MethodHead
from evergraph.streams import GraphStream, Task
from evergraph.streams.task import Lease
from evergraph.topology import SGC, EmbeddingCache, cached
from evergraph.training import Trainer

ANALYTIC = ("analytic:6", "analytic:2", "analytic:0+2")
MIXED = ("analytic:2", "tem:2", "tem:0+2")


def auto(*candidates: str, seed: int = 0, **options: Any) -> Auto:
    trainer = Trainer(epochs=2, batch_size=64, device="cpu")
    settings: dict[str, Any] = {"width": 32, "budget": 5, "probes": 6, **options}
    generator = seeded(seed, "learner")
    return Auto(candidates=candidates, trainer=trainer, generator=generator, **settings)


def learned(learner: Auto, stream: GraphStream, tasks: int = 3) -> Auto:
    for index in range(tasks):
        learner.fit_task(stream.open(index))
    return learner


def marked(monkeypatch: pytest.MonkeyPatch, learner: Auto, *marks: float) -> None:
    """Let every candidate reach the accuracy that is given here."""
    by_name = dict(zip(learner.candidates, marks, strict=True))
    monkeypatch.setattr(learner, "_mark", lambda candidate: by_name[candidate.name])


def alternating_rings() -> Graph:
    """Two rings of 60 nodes, one a task, on which every node's neighbours are of the other class.

    A hop multiplies what tells the classes apart by -1/3, and hardly touches where on its ring a
    node is: two hops leave a ninth of the difference, six leave a 729th.
    """
    nodes, place = torch.arange(120), torch.arange(120) % 60
    ring = nodes // 60
    angle = place * (2 * math.pi / 60)
    features = torch.stack([1.0 - 2.0 * (place % 2), angle.cos(), angle.sin(), ring], dim=1)
    neighbour = 60 * ring + (place + 1) % 60
    return Graph.from_edges(
        torch.stack([nodes, neighbour]),
        features=features,
        labels=2 * ring + place % 2,
        undirected=True,
    )


# ------------------------------------------------------------------ who answers


def test_the_view_that_tells_classes_apart_answers() -> None:
    stream = GraphStream(alternating_rings())
    learner = learned(auto("analytic:6", "analytic:2", width=256), stream, tasks=2)
    far, near = (learner._mark(candidate) for candidate in learner.alive_)
    assert near == 1.0
    assert far < 0.8
    assert learner.chosen_.name == "analytic:2"
    for exam in stream.exams(1, "local"):
        assert learner.predict(exam.graph, exam.nodes).equal(exam.labels)


def test_logits_and_novelty_are_those_of_the_chosen_one(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = auto("tem:2", "analytic:2")
    marked(monkeypatch, learner, 0.5, 0.75)
    stream = GraphStream(small_graph)
    learned(learner, stream, tasks=2)
    graph, nodes = stream.local_graph(0), torch.arange(9)
    other, chosen = (candidate.learner for candidate in learner.alive_)
    assert learner.logits(graph, nodes).equal(chosen.logits(graph, nodes))
    assert not learner.logits(graph, nodes).equal(other.logits(graph, nodes))
    assert learner.novelty(graph, nodes).equal(chosen.novelty(graph, nodes))
    given = torch.tensor([[4.0, 9.0]])
    assert learner.novelty(graph, nodes[:1], logits=given).tolist() == pytest.approx([0.1])


def test_the_choice_is_made_anew_after_every_task(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    learner, stream = auto(*ANALYTIC), GraphStream(small_graph)
    with caplog.at_level(logging.INFO):
        for index, best in enumerate(("analytic:2", "analytic:0+2", "analytic:6")):
            monkeypatch.setattr(
                learner, "_mark", lambda c, best=best: 0.99 + 0.01 * (c.name == best)
            )
            learner.fit_task(stream.open(index))
            assert learner.chosen_.name == best
    assert "task 0: analytic:2 is chosen of analytic:6 99.0, analytic:2 100.0" in caplog.text


# ------------------------------------------------------------------ who is let go


def test_who_trails_by_more_than_the_lead_goes_when_patience_is_over(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, stream = auto(*ANALYTIC, lead=0.25, patience=2), GraphStream(small_graph)
    marked(monkeypatch, learner, 1.0, 0.75, 0.5)
    left = []
    for index in range(3):
        learner.fit_task(stream.open(index))
        left.append([candidate.name for candidate in learner.alive_])
    assert left == [list(ANALYTIC), list(ANALYTIC[:2]), list(ANALYTIC[:2])]


def test_who_was_let_go_learns_nothing_more(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, stream = auto(*ANALYTIC, patience=1), GraphStream(small_graph)
    gone = learner.alive_[0].learner
    marked(monkeypatch, learner, 0.0, 1.0, 0.99)
    learned(learner, stream)
    assert gone.label_space_ == stream.label_space(0)
    assert all(c.learner.label_space_ == stream.label_space(2) for c in learner.alive_)
    assert {name.split(".")[0] for name, _ in learner.modules()} == set(ANALYTIC[1:])


def test_a_learner_is_restored_after_candidates_were_let_go(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = GraphStream(small_graph)
    whole, resumed = auto(*MIXED, patience=2), auto(*MIXED, patience=2, seed=99)
    for learner in (whole, resumed):
        marked(monkeypatch, learner, 0.0, 0.99, 1.0)
    learned(whole, stream, tasks=2)
    state = {name: tensor.clone() for name, tensor in whole.state().items()}
    resumed.restore(state, stream.label_space(1))
    assert [c.name for c in resumed.alive_] == ["tem:2", "tem:0+2"]
    assert resumed.chosen_.name == whole.chosen_.name == "tem:0+2"
    for learner in (whole, resumed):
        learner.fit_task(stream.open(2))
    assert whole.state().keys() == resumed.state().keys()
    for name, tensor in whole.state().items():
        assert tensor.equal(resumed.state()[name]), name
    assert resumed.usage == whole.usage


def test_usage_counts_all_that_is_left(small_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, stream = auto(*MIXED, patience=2), GraphStream(small_graph)
    marked(monkeypatch, learner, 1.0, 0.99, 0.0)
    learner.fit_task(stream.open(0))
    dims, hidden = small_graph.num_features, 512  # the view 0+2 is twice as wide
    probes, stored = 2 * 6, 2 * 5  # of two classes
    heads = [dims * hidden + hidden + hidden * 2 + 2, 2 * dims * hidden + hidden + hidden * 2 + 2]
    assert learner.usage.samples == (probes + stored) * (dims + 2 * dims)
    assert learner.usage.models == sum(heads)
    triangle_and_sums = 32 * 33 // 2 + 2 * 32
    assert learner.usage.statistics == 2 * triangle_and_sums  # of training and validation nodes
    ids = 3 * 8  # class, task and number of a probe
    parts = sum(candidate.learner.usage.bytes for candidate in learner.alive_)
    expected = parts + 4 * sum(heads) + 4 * probes * 3 * dims + 2 * probes * ids
    assert learner.usage.bytes == expected
    learner.fit_task(stream.open(1))  # tem:0+2 goes, and its view with it
    assert learner.usage.samples == 2 * (probes + stored) * dims
    assert learner.usage.models == heads[0] + (hidden + 1) * 2  # and two classes more


# ------------------------------------------------------------------ validation nodes


def task_of(labels: list[int], *, index: int = 0) -> Task:
    """All nodes are validation nodes; node i of the graph is the dataset's node 100 + i."""
    nodes = torch.arange(len(labels))
    graph = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long), features=torch.eye(len(labels)), labels=nodes
    )
    sizes = {label: labels.count(label) for label in sorted(set(labels))}
    nothing = torch.empty(0, dtype=torch.int64)
    return Task(
        index=index,
        label_space=LabelSpace("class-il", (2,)),
        ids=nodes + 100,
        train=nothing,
        train_labels=nothing,
        validation=nodes,
        validation_labels=torch.tensor(labels),
        own=nodes,
        class_sizes=sizes,
        met_sizes=sizes,
        lease=Lease(graph),
    )


def test_probes_are_spread_evenly_over_each_class() -> None:
    probes = Probes(4)
    embeddings = torch.arange(13.0)[:, None]
    probes.keep(task_of([0] * 10 + [1] * 3), embeddings, refresh=False)
    # ten in steps of 10/4: 0, 2.5, 5, 7.5; of three all
    assert probes.embeddings_.flatten().tolist() == [0, 2, 5, 7, 10, 11, 12]
    assert probes.nodes_.tolist() == [100, 102, 105, 107, 110, 111, 112]
    assert probes.labels_.tolist() == [0] * 4 + [1] * 3
    assert probes.tasks_.tolist() == [0] * 7


def test_the_accuracy_of_probes_is_balanced_and_within_the_task_where_it_is_known() -> None:
    probes = Probes(3)
    probes.keep(task_of([0, 0, 0, 1]), torch.zeros(4, 1), refresh=False)
    probes.keep(task_of([2], index=1), torch.zeros(1, 1), refresh=False)
    scores = torch.tensor([[3.0, 1, 0], [3, 1, 0], [3, 1, 9], [3, 1, 0], [3, 1, 2]])
    # class 0: two of three right; 1 and 2: none
    assert probes.accuracy(scores, LabelSpace("class-il", (2, 1))) == pytest.approx(2 / 9)
    # within the task the third and the last can no longer be wrong
    assert probes.accuracy(scores, LabelSpace("task-il", (2, 1))) == pytest.approx(2 / 3)


def test_probes_do_not_depend_on_the_order_of_classes(small_graph: Graph) -> None:
    kept = []
    for order in ([0, 1, 2, 3, 4, 5], [5, 0, 3, 2, 1, 4]):
        stream = GraphStream(small_graph, order=order)
        probes = learned(auto("analytic:2"), stream).probes_["2"]
        labels = torch.tensor(stream.classes)[probes.labels_]
        assert labels.equal(small_graph.labels[probes.nodes_])
        assert torch.bincount(labels).tolist() == [6] * 6
        kept.append(probes.nodes_.sort().values)
    assert kept[0].equal(kept[1])


def test_probes_are_looked_up_anew_where_the_graph_is_still_there(small_graph: Graph) -> None:
    stream = GraphStream(small_graph, edges="all")
    whole = EmbeddingCache(SGC(hops=2)).encode(stream.union_graph(2))
    ids = stream.open(2).ids
    for refresh, is_new in (("embeddings", True), ("none", False)):
        probes = learned(auto("analytic:2", "tem:2", refresh=refresh), stream).probes_["2"]
        expected = whole[torch.searchsorted(ids, probes.nodes_)]
        same = torch.isclose(probes.embeddings_, expected, atol=1e-5).all(1)
        assert bool(same[probes.tasks_ == 2].all())
        assert bool(same[probes.tasks_ < 2].all()) is is_new


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": ["ewc:2"]}, "^unknown candidates: method 'ewc': .*analytic, tem$"),
        ({"candidates": ["tem:2", "tem:3"]}, r"^unknown candidates: view '3': .*0\+2, 2, 2\+4, 4"),
        ({"candidates": ["tem"]}, "^unknown candidates: view ''"),
        ({"candidates": "tem:2"}, "candidates must be a list of 'method:view' names, not 'tem:2'"),
        ({"candidates": None}, "candidates must be a list of 'method:view' names, not None"),
        ({"candidates": [2]}, "^unknown candidates: method '2'"),
        ({"probes": 0}, "probes must be an integer of at least 1, not 0"),
        ({"patience": 0}, "patience must be an integer of at least 1, not 0"),
        ({"lead": -0.1}, "lead must be a number of at least 0.0, not -0.1"),
        ({"backbone": GCN()}, "models on embeddings: use backbone 'pdgnn', not 'gcn'"),
        ({"backbone": RandomFeatures()}, "use backbone 'pdgnn', not 'random-features'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Auto(trainer=Trainer(device="cpu"), generator=seeded(0), **options)


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_without_validation_nodes_the_first_candidate_answers(
    setting: Any, small_graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind an online learner that knows fewer labels than it holds out one of."""
    stream = GraphStream(small_graph, setting=setting)
    learner = auto(*MIXED, patience=1, lead=0.0)
    nobody = torch.empty(0, dtype=torch.int64)
    with caplog.at_level(logging.INFO, "evergraph"):
        for index in range(2):
            task = stream.open(index)
            learner.fit_task(replace(task, validation=nobody, validation_labels=nobody))
    assert learner.chosen_.name == MIXED[0]
    assert [candidate.name for candidate in learner.alive_] == list(MIXED)
    assert "task 1: analytic:2 goes on, with no validation nodes to tell" in caplog.text
    other = auto(*MIXED, patience=1, lead=0.0, seed=1)
    other.restore(learner.state(), stream.label_space(1))
    other.fit_task(stream.open(2))  # from now on there is something to choose by
    assert len(other.probes_["2"].labels_) == 2 * 6


def test_few_labels_online_do_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evergraph.online.heads.method.methods.make", small_auto)
    for labels in ([0], [0, 1, 1], [0, 1] * 6):
        head, count = MethodHead(method="auto"), len(labels)
        head.begin(4, topology=SGC(), scaling="unit", generator=seeded(0))
        lonely = Graph.from_edges(
            torch.empty(2, 0, dtype=torch.long),
            features=torch.eye(4)[torch.tensor(labels)],
            labels=torch.full((count,), -1),
        )
        head.grow(max(labels) + 1)
        head.see(lonely, torch.arange(count))
        head.learn(torch.arange(count), torch.zeros(count, 4), torch.tensor(labels))
        head.settle()
        scores = head.scorer()(torch.arange(count), torch.zeros(count, 4))
        assert scores.argmax(1).tolist() == labels


def small_auto(name: str, **options: Any) -> Auto:
    assert name == "auto"
    return Auto(candidates=("analytic:2",), width=32, **options)


def test_the_backbone_decides_head_and_scaling_of_all_candidates() -> None:
    learner = auto("tem:2", "analytic:4", backbone=PDGNN(hidden=(7,), scaling="none"))
    tem, analytic = (candidate.learner.backbone for candidate in learner.alive_)
    assert isinstance(tem, PDGNN)
    assert isinstance(analytic, RandomFeatures)
    assert (tem.hidden, tem.hops, analytic.hops) == ((7,), 2, 4)
    assert tem.embeddings.scaling == analytic.embeddings.scaling == "none"
    assert analytic.centred


def test_a_grown_graph_is_embedded_once_for_all_candidates_of_a_view(
    small_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown: list[int] = []
    whole = cached.grown_embeddings

    def counted(topology: Any, graph: Graph, **parts: Any) -> Any:
        grown.append(graph.num_nodes)
        return whole(topology, graph, **parts)

    monkeypatch.setattr(cached, "grown_embeddings", counted)
    learner = auto("analytic:2", "tem:2", refresh="embeddings", patience=9)
    learned(learner, GraphStream(small_graph, edges="all"))
    assert len(grown) == 2  # the first graph has not grown, the other two have
    assert learner.recomputed == learner.chosen_.learner.recomputed
    assert learner.recomputed is not None
    assert 0 < learner.recomputed[0] <= learner.recomputed[1] < sum(grown)


def test_a_trainer_cannot_drive_it(small_graph: Graph) -> None:
    learner = auto("analytic:2")
    with pytest.raises(ConfigurationError, match="auto learns a task as a whole: call fit_task"):
        learner.trainer.fit(learner, GraphStream(small_graph).open(0))
