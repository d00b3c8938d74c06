"""The upper bound: candidates, and the choice among them."""

from dataclasses import replace
from typing import Any

import torch

from evergraph.core.seeding import seeded
from evergraph.methods import Joint
from evergraph.nn import PDGNN, Tuned
from evergraph.streams import GraphStream
from evergraph.training import Trainer


def joint(**options: Any) -> Joint:
    trainer = Trainer(epochs=3, patience=3, batch_size=None, lr=0.01, device="cpu")
    given = {"backbone": Tuned(hidden=16), "trainer": trainer} | options
    return Joint(generator=seeded(0), **given)


def fitted(learner: Joint, stream: GraphStream, *indices: int) -> Joint:
    for index in indices:
        learner.fit_task(stream.open(index, cumulative=True))
    return learner


def test_the_best_candidate_on_validation_nodes_is_kept(small_graph):
    stream = GraphStream(small_graph)
    learner, found = joint(), []
    original = learner.validate

    def validate(task):
        original(task)  # weights are there
        found.append((learner.backbone.kind, learner.backbone.layers))
        return (1.0 if found[-1] == ("sage", 3) else 0.5), 0.0

    learner.trainer.patience = 0
    learner.validate = validate
    fitted(learner, stream, 0)
    assert found == [("gcn", 2), ("gcn", 3), ("sage", 2), ("sage", 3), ("mlp", 2)]
    assert learner.tried_ == [0.5, 0.5, 0.5, 1.0, 0.5]
    assert (learner.backbone.kind, learner.backbone.layers) == ("sage", 3)


def test_every_choice_begins_from_scratch_unless_nodes_are_few_more(small_graph):
    stream = GraphStream(small_graph)
    for again, fits in ((1.0, [5, 5, 5]), (1.7, [5, 5, 1])):  # 120, 240 and 360 nodes
        learner, counts = joint(again=again), []
        for index in range(3):
            epochs = []
            learner.trainer.on_epoch = lambda task, epoch, seen=epochs: seen.append(epoch)
            fitted(learner, stream, index)
            counts.append(epochs.count(0))
        assert counts == fits


def test_a_chosen_network_is_restored_whatever_its_shape(small_graph):
    stream = GraphStream(small_graph)
    learner = fitted(joint(again=9.0), stream, 0)
    learner._choice = 3, learner._choice[1]
    learner._continue_with(learner.backbone.candidates()[3])
    fitted(learner, stream, 1)
    twin = joint(again=9.0)
    twin.restore(learner.state(), stream.label_space(1))
    assert (twin.backbone.kind, twin.backbone.layers) == ("sage", 3)
    nodes = torch.arange(10)
    graph = stream.union_graph(1)
    assert twin.logits(graph, nodes).equal(learner.logits(graph, nodes))


def test_another_backbone_is_trained_as_it_is(small_graph):
    learner = fitted(joint(backbone=PDGNN(hidden=(8,))), GraphStream(small_graph), 0)
    assert learner.tried_ == []
    assert "choice" not in learner.state()


def test_without_validation_nodes_there_is_no_choice(small_graph):
    task = GraphStream(small_graph).open(0, cumulative=True)
    none = {"validation": task.validation[:0], "validation_labels": task.validation_labels[:0]}
    learner = joint()
    learner.fit_task(replace(task, **none))
    assert len(learner.tried_) == 1
    assert learner.backbone.kind == "gcn"
