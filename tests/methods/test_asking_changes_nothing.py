"""A learner that was asked goes on as one that was not; what it cannot learn from it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evergraph.closed_form import ViewFeatures
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph
from evergraph.methods import methods
from evergraph.methods.examples import example_weights
from evergraph.nn import RandomFeatures
from evergraph.streams import GraphStream

Make = Any


def small(name: str) -> dict[str, Any]:
    """Return what keeps a method from taking long."""
    if name == "auto":
        return {"backbone": ViewFeatures(width=8), "probes": 1}
    return {"backbone": RandomFeatures(width=8)} if name == "analytic" else {}


@pytest.mark.parametrize("name", methods.names())
def test_answers_in_between_leave_later_tasks_as_they_are(
    make: Make, two_pairs: Graph, name: str
) -> None:
    """With dropout, which answers do without and training must not."""
    learners = [make(name, epochs=3, **small(name)) for _ in range(2)]
    stream = GraphStream(two_pairs)
    for learner, asked in zip(learners, (True, False), strict=True):
        learner.fit_task(stream.open(0))
        if asked:
            first = learner.predict(two_pairs, torch.arange(16))
            assert learner.predict(two_pairs, torch.arange(16)).equal(first)
        learner.fit_task(stream.open(1, cumulative=learner.cumulative))
    states = [learner.state() for learner in learners]
    assert states[0].keys() == states[1].keys()
    for part, tensor in states[0].items():
        assert tensor.equal(states[1][part]), part


def test_a_graph_without_features_is_refused(make: Make) -> None:
    bare = Graph.from_edges(
        torch.tensor([[0, 4], [1, 5]]),
        features=torch.zeros(8, 0),
        labels=torch.arange(8) // 4,
        undirected=True,
    )
    with pytest.raises(ConfigurationError, match="the graph has no features to learn from"):
        make("finetune").fit_task(GraphStream(bare).open(0))


def test_stored_examples_weigh_as_much_as_others_unless_told() -> None:
    targets, stored = torch.tensor([0, 0, 1]), torch.tensor([False, True, True])
    terms = torch.zeros(3, dtype=torch.int64)
    plain = example_weights("plain", targets, stored, terms)
    assert plain.tolist() == [1.0, 1.0, 1.0]
    thrice = example_weights("plain", targets, stored, terms, replay_weight=3.0)
    assert thrice.tolist() == [1.0, 3.0, 3.0]
