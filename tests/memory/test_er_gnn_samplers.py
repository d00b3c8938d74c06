"""ER-GNN's coverage and influence samplers, by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.memory import Candidates
from evergraph.memory.samplers import EmbeddingCoverageSampler, InfluenceSampler


def candidates_of(
    embeddings: Tensor, labels: list[int], residuals: Tensor | None = None
) -> Candidates:
    nodes = len(labels)
    graph = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long), features=embeddings, labels=torch.tensor(labels)
    )
    return Candidates(
        graph, torch.arange(nodes), torch.tensor(labels), embeddings, hops=1, residuals=residuals
    )


def test_coverage_counts_other_classes_nearby() -> None:
    """On a line: class 0 at 0, 1, 5 and class 1 at 6, 20; only 5 and 6 are near each other."""
    places = torch.tensor([[0.0], [1.0], [5.0], [6.0], [20.0]])
    candidates = candidates_of(places, [0, 0, 0, 1, 1])
    deviation = float(places.std(unbiased=False))
    sampler = EmbeddingCoverageSampler(radius=2.0 / (2**0.5 * deviation))  # a distance of 2
    ranks = sampler.rank(candidates, {0: 2, 1: 1}, generator=torch.Generator())
    assert ranks.floor().tolist() == [0, 0, 1, 1, 0]
    chosen = sampler.select(candidates, {0: 2, 1: 1}, generator=torch.Generator())
    assert chosen.tolist() == [0, 1, 4]


def test_equals_are_drawn_at_random() -> None:
    candidates = candidates_of(torch.zeros(6, 2), [0] * 6)
    draws = {
        tuple(
            EmbeddingCoverageSampler()
            .select(candidates, {0: 2}, generator=torch.Generator().manual_seed(seed))
            .tolist()
        )
        for seed in range(20)
    }
    assert len(draws) > 5


def test_influence_by_hand() -> None:
    """With h = 1 for all, influence is the squared residual over its mean square."""
    residuals = torch.tensor([[1.0], [2.0], [3.0]])
    candidates = candidates_of(torch.ones(3, 1), [0, 0, 0], residuals)
    ranks = InfluenceSampler(damping=1e-8).rank(candidates, {0: 1}, generator=torch.Generator())
    expected = -torch.tensor([1.0, 4.0, 9.0]).double() / (14 / 3)
    torch.testing.assert_close(ranks, expected, atol=1e-5, rtol=1e-5)


def test_influence_is_the_quadratic_form_of_the_factored_hessian() -> None:
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(8, 3, generator=draw).double()
    residuals = torch.randn(8, 2, generator=draw).double()
    candidates = candidates_of(hidden.float(), [0] * 8, residuals.float())
    found = InfluenceSampler(damping=1e-6).rank(candidates, {0: 1}, generator=draw)
    hessian = torch.kron(residuals.t() @ residuals / 8, hidden.t() @ hidden / 8)
    gradients = torch.stack(
        [torch.outer(d, h).flatten() for d, h in zip(residuals, hidden, strict=True)]
    )
    expected = -(gradients @ torch.linalg.inv(hessian) * gradients).sum(1)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def test_without_residuals_it_is_leverage_and_the_outlier_comes_first() -> None:
    places = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [0.0, 5.0]])
    sampler = InfluenceSampler()
    assert sampler.select(
        candidates_of(places, [0] * 4), {0: 1}, generator=torch.Generator()
    ).tolist() == [3]
