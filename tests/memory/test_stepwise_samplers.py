"""Herding and k-centre: the choices written out, and against searches of all candidates."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs import Graph
from evergraph.memory import Candidates, samplers
from evergraph.memory.samplers import HerdingSampler, KCentreSampler

points = st.lists(st.tuples(*[st.integers(-9, 9)] * 2), min_size=1, max_size=12)


def candidates_of(embeddings: Tensor, labels: list[int]) -> Candidates:
    graph = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long), features=embeddings, labels=torch.tensor(labels)
    )
    return Candidates(graph, torch.arange(len(labels)), torch.tensor(labels), embeddings, hops=1)


def test_herding_by_hand() -> None:
    # Mean 3. First 4, one away. Then (4 + e) / 2 is nearest 3 with e = 1 (2.5; with 7 it is 5.5,
    # with 0 it is 2). Then (4 + 1 + e) / 3 is 4 with 7 and 5/3 with 0.
    line = torch.tensor([[0.0], [1.0], [4.0], [7.0]])
    assert HerdingSampler().order(line, 4).tolist() == [2, 1, 3, 0]


def test_without_the_running_mean_herding_would_take_the_nearest() -> None:
    # mean 0: 1 and 2 are nearer to it than -3, but only -3 brings the mean of the chosen back
    line = torch.tensor([[1.0], [2.0], [-3.0]])
    assert HerdingSampler().order(line, 2).tolist() == [0, 2]
    nearest = samplers.make("mean-feature")
    chosen = nearest.select(candidates_of(line, [0] * 3), {0: 2}, generator=torch.Generator())
    assert chosen.tolist() == [0, 1]


def test_k_centre_by_hand() -> None:
    # mean 3: starts at 4; then 0 is four away; then 7 is three away, and 1 is one away
    line = torch.tensor([[0.0], [1.0], [4.0], [7.0]])
    assert KCentreSampler().order(line, 4).tolist() == [2, 0, 3, 1]


def test_classes_have_orders_of_their_own() -> None:
    # class 0 at 0 1 4 7 as above, class 1 at 100 and 102, of which one is asked for
    line = torch.tensor([[0.0], [100.0], [1.0], [4.0], [102.0], [7.0]])
    candidates = candidates_of(line, [0, 1, 0, 0, 1, 0])
    ranks = HerdingSampler().rank(candidates, {0: 3, 1: 1}, generator=torch.Generator())
    assert ranks.tolist() == [math.inf, 0, 1, 0, math.inf, 2]


@given(places=points)
def test_herding_takes_at_every_step_what_a_search_would(places: list[tuple[int, int]]) -> None:
    rows = torch.tensor(places, dtype=torch.float64)
    taken: list[int] = []
    for row in HerdingSampler().order(rows, len(rows)).tolist():
        free = [other for other in range(len(rows)) if other not in taken]
        apart = {v: float((rows.mean(0) - rows[[*taken, v]].mean(0)).norm()) for v in free}
        assert apart[row] == pytest.approx(min(apart.values()), abs=1e-9)
        taken.append(row)


@given(places=points)
def test_k_centre_takes_at_every_step_the_farthest(places: list[tuple[int, int]]) -> None:
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
