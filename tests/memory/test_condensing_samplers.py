"""Synthetic embeddings: what they match, and what they would not without the term that says so."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from evergraph.graphs import Graph
from evergraph.memory import Candidates, EmbeddingMemory, samplers
from evergraph.memory.samplers import DistributionMatchingSampler, GradientMatchingSampler
from evergraph.memory.samplers.condensing import (
    CondensingSampler,
    _gradients,
    averaging,
    has_unit_length,
)
from graphs_to_draw import generator

CONDENSING = [n for n in samplers.names() if issubclass(samplers.resolve(n), CondensingSampler)]


def candidates_of(embeddings: Tensor, labels: Tensor) -> Candidates:
    graph = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long), features=embeddings, labels=labels
    )
    return Candidates(graph, torch.arange(len(labels)), labels, embeddings, hops=1)


def clouds(seed: int = 0, *, unit: bool = False) -> Candidates:
    """40 nodes of class 3 around one point and 40 of class 5 around another."""
    labels = torch.tensor([3, 5] * 40)
    centres = 2 * torch.randn(2, 6, generator=generator(seed))
    rows = centres[(labels == 5).long()] + torch.randn(80, 6, generator=generator(seed + 1))
    return candidates_of(normalize(rows) if unit else rows, labels)


def condensed(name: str, candidates: Candidates, budget: int = 4, **options: object) -> Tensor:
    sampler = samplers.make(name, **options)
    chosen = sampler.select(candidates, {3: budget, 5: budget}, generator=generator())
    return sampler.vectors(candidates, chosen, generator=generator())


@pytest.mark.parametrize("name", CONDENSING)
def test_vectors_are_new_and_nearer_to_the_candidates_than_those_chosen(name):
    candidates = clouds()
    sampler = samplers.make(name, start="uniform")
    chosen = sampler.select(candidates, {3: 4, 5: 4}, generator=generator())
    made = sampler.vectors(candidates, chosen, generator=generator(7))
    distance = sampler.distance(candidates, candidates.labels[chosen], generator=generator(7))
    assert float(distance(made)) < 0.2 * float(distance(candidates.embeddings[chosen]))
    assert torch.cdist(made, candidates.embeddings).min() > 0.01  # no row of the candidates
    assert not made.requires_grad


@pytest.mark.parametrize("name", CONDENSING)
def test_without_steps_the_chosen_are_kept(name):
    candidates = clouds()
    chosen = samplers.make("herding").select(candidates, {3: 4, 5: 4}, generator=generator())
    assert condensed(name, candidates, steps=0).equal(candidates.embeddings[chosen])


@pytest.mark.parametrize("name", CONDENSING)
def test_unit_length_is_kept_and_no_other_is_imposed(name):
    assert has_unit_length(condensed(name, clouds(unit=True)))
    assert not has_unit_length(condensed(name, clouds()))
    assert has_unit_length(torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    assert not has_unit_length(torch.tensor([[0.6, 0.8], [0.0, 0.5]]))


@pytest.mark.parametrize("name", CONDENSING)
def test_vectors_hold_in_any_unit_of_length(name):
    candidates = clouds()
    larger = candidates_of(100 * candidates.embeddings, candidates.labels)
    small, large = condensed(name, candidates), condensed(name, larger)
    torch.testing.assert_close(100 * small, large, rtol=1e-2, atol=1.0)


def test_the_mean_is_matched_and_with_features_the_spread_too():
    # Class 3 at 0 and its mirror image: the mean says nothing of how far apart they are. From two
    # rows close together, only the random layer can tell.
    rows = torch.tensor([[-3.0], [3.0], [-3.0], [3.0], [-0.2], [0.3]])
    candidates = candidates_of(rows, torch.full((6,), 3))
    spread = {}
    for features in (0, 64):
        sampler = DistributionMatchingSampler(features=features, steps=200)
        made = sampler.vectors(candidates, torch.tensor([4, 5]), generator=generator())
        assert float(made.mean()) == pytest.approx(float(rows.mean()), abs=0.1)
        spread[features] = float(made.max() - made.min())
    assert spread[0] == pytest.approx(0.5, abs=0.01)
    assert spread[64] > 3.0


@given(seed=st.integers(0, 1000))
def test_gradients_are_those_of_cross_entropy(seed):
    draw = generator(seed)
    rows = torch.randn(7, 3, generator=draw)
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    heads = torch.randn(2, 4, 3, generator=draw)
    classes = torch.tensor([0, 2])
    found = _gradients(rows, targets, averaging(targets, classes), heads)
    for place, label in enumerate(classes.tolist()):
        own = targets == label
        for number, head in enumerate(heads):
            weights = head[:3].clone().requires_grad_()
            loss = cross_entropy(rows[own] @ weights + head[3], targets[own])
            (expected,) = torch.autograd.grad(loss, weights)
            torch.testing.assert_close(found[place, number], expected.t())


def test_gradients_are_compared_relative_to_their_length():
    """Vectors of 0 have no gradient: every class and head is ‖G - 0‖² / ‖G‖² = 1 away from it."""
    candidates = clouds()
    sampler = GradientMatchingSampler(heads=3)
    distance = sampler.distance(candidates, torch.tensor([3, 5]), generator=generator())
    assert float(distance(torch.zeros(2, 6))) == pytest.approx(1.0)


def test_scores_of_random_heads_are_centred_and_as_sharp_as_asked():
    candidates = clouds()
    heads = GradientMatchingSampler(heads=400, sharpness=3.0)._heads(
        candidates.embeddings + 50, 2, generator=generator()
    )
    scores = (candidates.embeddings + 50) @ heads[:, :-1] + heads[:, -1:]
    assert float(scores.mean()) == pytest.approx(0.0, abs=1e-2)
    assert float(scores.square().mean().sqrt()) == pytest.approx(3.0, rel=0.1)


def test_a_task_of_one_class_has_no_gradient_to_match():
    rows = torch.randn(6, 3, generator=generator())
    candidates = candidates_of(rows, torch.full((6,), 3))
    made = GradientMatchingSampler().vectors(
        candidates, torch.tensor([0, 4]), generator=generator()
    )
    assert made.equal(rows[[0, 4]])


@pytest.mark.parametrize("name", CONDENSING)
def test_a_memory_stores_the_vectors_as_the_nodes_they_started_from(name):
    candidates, started = clouds(), EmbeddingMemory(budget=4, sampler=samplers.make("herding"))
    memory = EmbeddingMemory(budget=4, sampler=samplers.make(name))
    for each in (started, memory):
        each.store(candidates, {3: 40, 5: 40}, generator=generator())
    assert memory.nodes_.equal(started.nodes_)
    assert memory.labels_.equal(started.labels_)
    assert memory.embeddings_.shape == started.embeddings_.shape
    assert not memory.embeddings_.isclose(started.embeddings_).all(1).any()
