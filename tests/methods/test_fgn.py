"""Replay of feature graphs."""

import torch

from evergraph.memory import EmbeddingMemory
from evergraph.memory.samplers import UniformSampler
from evergraph.nn import FeatureGraph
from evergraph.streams import GraphStream


def test_stored_feature_graphs_keep_old_classes(make, two_pairs):
    kept = []
    for budget in (10, 0):
        memory = EmbeddingMemory(budget=budget, sampler=UniformSampler())
        backbone = FeatureGraph(channels=(8,), dropout=0.0)
        learner = make("fgn", epochs=60, lr=0.02, memory=memory, backbone=backbone)
        stream = GraphStream(two_pairs)
        for task in stream:
            learner.fit_task(task)
        exam = stream.exams(1, "local")[0]
        answers = learner.predict(exam.graph, exam.nodes)
        kept.append(float((answers == exam.labels).float().mean()))
    assert kept == [1.0, 0.0]


def test_a_node_is_kept_as_what_makes_its_feature_graph(make, two_pairs):
    learner = make("fgn", epochs=1)
    for task in GraphStream(two_pairs):
        learner.fit_task(task)
    memory = learner.memory
    assert memory.embeddings_.shape[1] == 8  # its 4 features and its neighbours', not 4² of them
    assert (memory.budget, memory.sampler.name) == (100, "uniform")
    inputs = learner.backbone.prepare(two_pairs)  # no edges between tasks: the same graph
    torch.testing.assert_close(memory.embeddings_, inputs[memory.nodes_])


def test_features_that_are_not_told_apart_are_said_once(make, two_pairs, caplog):
    caplog.set_level("INFO", "evergraph")
    for width, said in ((2, 1), (4, 0)):
        caplog.clear()
        learner = make("fgn", epochs=1, backbone=FeatureGraph(width=width))
        for task in GraphStream(two_pairs):
            learner.fit_task(task)
        assert caplog.text.count(f"projected at random to {width}") == said
