"""Method analytic where nodes have several labels or numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, Targets
from evergraph.methods import methods
from evergraph.methods.analytic import Analytic
from evergraph.methods.base import load_learner
from evergraph.nn import RandomFeatures
from evergraph.streams import GraphStream
from evergraph.topology import topologies

NAN = float("nan")


def graph_of(kind: str, nodes: int = 120) -> Graph:
    """Return a graph whose targets can be read off its features, a tenth of one of them missing."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(nodes, 4, generator=generator)
    values = features[:, :2] * torch.tensor([2.0, 30.0]) + 7
    if kind == "labels":
        values = (features[:, :2] > 0).float()
    values[torch.rand(nodes, generator=generator) < 0.1, 0] = NAN
    edges = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    return Graph.from_edges(edges, features=features, targets=Targets(values, kind, ("a", "b")))


def learner(**parameters: Any) -> Analytic:
    topology = topologies.make("identity")
    made = methods.make(
        "analytic",
        backbone=RandomFeatures(width=32, topology=topology, scaling="none"),
        generator=torch.Generator().manual_seed(0),
        **parameters,
    )
    return made


def learned(graph: Graph, *, tasks: int = 3, **parameters: Any) -> tuple[Analytic, GraphStream]:
    stream = GraphStream(graph, by="random", tasks=tasks, edges="all")
    made = learner(**parameters)
    for task in stream:
        made.fit_task(task)
    return made, stream


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_answers_are_those_of_scikit_learn_on_the_same_features(kind):
    linear = pytest.importorskip("sklearn.linear_model")
    graph = graph_of(kind)
    made, stream = learned(graph, regularisation=0.001)
    nodes = torch.cat([split.train for split in stream.splits])
    answers = made.logits(graph.without_labels(), torch.arange(120))
    if kind == "labels":  # as they are before the sigmoid
        answers = (answers - made.answers_[1]) / made.answers_[0]
    phi = made.backbone.expand(graph.features).double().numpy()
    for target in range(2):
        known = nodes[~graph.targets.values[nodes, target].isnan()]
        shown = phi[known] - phi[known].mean(0) if kind == "numbers" else phi[known]
        alpha = 0.001 * np.square(shown).sum() / shown.shape[1]
        ridge = linear.Ridge(alpha=alpha, fit_intercept=kind == "numbers")
        theirs = ridge.fit(phi[known], graph.targets.values[known, target]).predict(phi)
        assert np.abs(answers[:, target].numpy() - theirs).max() < 1e-4 * np.abs(theirs).max()


def test_labels_are_found():
    made, stream = learned(graph_of("labels", 400))
    [exam] = stream.exams(2, "global")
    given = made.predict(exam.graph, exam.nodes)
    known = ~exam.targets.isnan()
    assert (given == exam.targets)[known].float().mean() > 0.8
    probabilities = made.predict_proba(exam.graph, exam.nodes)
    assert torch.equal((probabilities > 0.5).long(), given)
    answered = made.answer(exam.graph, exam.nodes)
    assert answered.values is not None
    assert torch.allclose(answered.values, probabilities)


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_forgotten_nodes_were_never_met(kind):
    graph = graph_of(kind)
    made, stream = learned(graph, ledger=True)
    gone = torch.cat([stream.splits[1].train[:5], stream.splits[2].validation[:2]])
    made.forget(gone, stream.union_graph(2))
    values = graph.targets.values.clone()
    values[gone] = NAN
    never = learner()
    task = stream.open(2, cumulative=True)
    never.fit_task(
        replace(
            task,
            train_targets=values[task.ids[task.train]],
            validation_targets=values[task.ids[task.validation]],
        )
    )
    asked = stream.union_graph(2), torch.arange(120)
    assert torch.allclose(made.logits(*asked), never.logits(*asked), atol=1e-2, rtol=1e-3)


def test_learners_of_the_same_targets_are_merged():
    graph = graph_of("numbers")
    whole, stream = learned(graph, tasks=2)
    one, two = learner(), learner()
    one.fit_task(stream.open(0))
    two.fit_task(stream.open(1))
    one.merge(two)
    asked = stream.union_graph(1), torch.arange(120)
    assert torch.allclose(one.logits(*asked), whole.logits(*asked), rtol=1e-4)
    labels, _ = learned(graph_of("labels"), tasks=2)
    with pytest.raises(ConfigurationError, match="not numbers and labels"):
        one.merge(labels)


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_a_saved_learner_answers_the_same_and_goes_on(kind, tmp_path):
    made, stream = learned(graph_of(kind))
    asked = stream.union_graph(2), torch.arange(20)
    made.save(tmp_path / "learner")
    again = load_learner(tmp_path / "learner")
    assert torch.equal(again.logits(*asked), made.logits(*asked))
    assert again.label_space_.names == ("a", "b")
    again.fit_task(stream.open(2))
    assert again.usage.statistics == made.usage.statistics


def test_every_other_method_refuses_in_one_sentence():
    task = GraphStream(graph_of("labels"), by="random", tasks=2).open(0)
    for name in methods.names():
        if name != "analytic":
            made = methods.make(name, generator=torch.Generator())
            with pytest.raises(ConfigurationError, match=f"'{name}' learns one class per node"):
                made.fit_task(task)


def test_numbers_have_no_probabilities_and_no_novelty():
    made, stream = learned(graph_of("numbers"))
    with pytest.raises(ConfigurationError, match="call predict"):
        made.predict_proba(stream.union_graph(2))
    with pytest.raises(ConfigurationError, match="novelty needs nodes with classes"):
        made.novelty(stream.union_graph(2), torch.arange(3))
