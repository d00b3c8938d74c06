"""Samplers that look at embeddings: choices written out, and against searches of all candidates."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.memory import Candidates, samplers
from evergraph.memory.samplers import (
    EmbeddingCoverageSampler,
    HerdingSampler,
    InfluenceSampler,
    KCentreSampler,
)

points = st.lists(st.tuples(*[st.integers(-9, 9)] * 2), min_size=1, max_size=12)


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


def test_coverage_counts_other_classes_nearby():
    """On a line: class 0 at 0, 1, 5 and class 1 at 6, 20; only 5 and 6 are near each other."""
    places = torch.tensor([[0.0], [1.0], [5.0], [6.0], [20.0]])
    candidates = candidates_of(places, [0, 0, 0, 1, 1])
    deviation = float(places.std(unbiased=False))
    sampler = EmbeddingCoverageSampler(radius=2.0 / (2**0.5 * deviation))  # a distance of 2
    ranks = sampler.rank(candidates, {0: 2, 1: 1}, generator=torch.Generator())
    assert ranks.floor().tolist() == [0, 0, 1, 1, 0]
    chosen = sampler.select(candidates, {0: 2, 1: 1}, generator=torch.Generator())
    assert chosen.tolist() == [0, 1, 4]


def test_equals_are_drawn_at_random():
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


def test_influence_by_hand():
    """With h = 1 for all, influence is the squared residual over its mean square."""
    residuals = torch.tensor([[1.0], [2.0], [3.0]])
    candidates = candidates_of(torch.ones(3, 1), [0, 0, 0], residuals)
    ranks = InfluenceSampler(damping=1e-8).rank(candidates, {0: 1}, generator=torch.Generator())
    expected = -torch.tensor([1.0, 4.0, 9.0]).double() / (14 / 3)
    torch.testing.assert_close(ranks, expected, atol=1e-5, rtol=1e-5)


def test_influence_is_the_quadratic_form_of_the_factored_hessian():
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


def test_herding_and_k_centre_by_hand():
    # Mean 3. First 4, one away. Then (4 + e) / 2 is nearest 3 with e = 1 (2.5; with 7 it is 5.5,
    # with 0 it is 2). Then (4 + 1 + e) / 3 is 4 with 7 and 5/3 with 0.
    line = torch.tensor([[0.0], [1.0], [4.0], [7.0]])
    assert HerdingSampler().order(line, 4).tolist() == [2, 1, 3, 0]
    # mean 3: starts at 4; then 0 is four away; then 7 is three away, and 1 is one away
    assert KCentreSampler().order(line, 4).tolist() == [2, 0, 3, 1]
    # mean 0: 1 and 2 are nearer to it than -3, but only -3 brings the mean of the chosen back
    line = torch.tensor([[1.0], [2.0], [-3.0]])
    assert HerdingSampler().order(line, 2).tolist() == [0, 2]
    nearest = samplers.make("mean-feature")
    chosen = nearest.select(candidates_of(line, [0] * 3), {0: 2}, generator=torch.Generator())
    assert chosen.tolist() == [0, 1]


def test_classes_have_orders_of_their_own():
    # class 0 at 0 1 4 7 as above, class 1 at 100 and 102, of which one is asked for
    line = torch.tensor([[0.0], [100.0], [1.0], [4.0], [102.0], [7.0]])
    candidates = candidates_of(line, [0, 1, 0, 0, 1, 0])
    ranks = HerdingSampler().rank(candidates, {0: 3, 1: 1}, generator=torch.Generator())
    assert ranks.tolist() == [math.inf, 0, 1, 0, math.inf, 2]


@given(places=points)
def test_herding_takes_at_every_step_what_a_search_would(places):
    rows = torch.tensor(places, dtype=torch.float64)
    taken = []
    for row in HerdingSampler().order(rows, len(rows)).tolist():
        free = [other for other in range(len(rows)) if other not in taken]
        apart = {v: float((rows.mean(0) - rows[[*taken, v]].mean(0)).norm()) for v in free}
        assert apart[row] == pytest.approx(min(apart.values()), abs=1e-9)
        taken.append(row)


@given(places=points)
def test_k_centre_takes_at_every_step_the_farthest(places):
    rows = torch.tensor(places, dtype=torch.float64)
    first, *later = KCentreSampler().order(rows, len(rows)).tolist()
    from_mean = (rows - rows.mean(0)).norm(dim=1)
    assert from_mean[first] == pytest.approx(float(from_mean.min()))
    taken = [first]
    for row in later:
        apart = torch.stack([(rows - rows[w]).norm(dim=1) for w in taken]).min(0).values
        assert apart[row] == pytest.approx(float(apart.max()))
        assert row not in taken
        taken.append(row)
