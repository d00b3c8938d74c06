"""Statistics counted by several: the same for any number of workers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from evergraph.closed_form import ClassStatistics, counting
from evergraph.closed_form.counting import count_block, count_views, with_counted
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import CODES, ViewRows, parse_views
from evergraph.cluster.ray_engine import RayEngine
from evergraph.core.engine import LocalEngine
from evergraph.core.resources import Resources
from evergraph.nn.random_features import Expansion

WIDTH = 12


class Several(LocalEngine):
    """One process that says it is several."""

    def __init__(self, workers: int) -> None:
        self.workers = workers


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "BLOCK_ROWS", 7)


def nodes(count: int = 50) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    labels = torch.randint(4, (count,), generator=draw)
    return torch.randn(count, 3, generator=draw), labels, torch.rand(count, generator=draw) + 0.1


def expansion() -> Expansion:
    draw = torch.Generator().manual_seed(2)
    return Expansion(torch.randn(3, WIDTH, generator=draw), torch.zeros(WIDTH), "relu")


def counted(resources: Resources, *, rank: int | None = None) -> ClassStatistics:
    statistics = ClassStatistics(WIDTH, rank=rank)
    statistics.add(torch.ones(1, WIDTH), torch.tensor([5]), torch.ones(1))  # known before
    return with_counted(statistics, *nodes(), expand=expansion(), resources=resources)


def test_a_block_by_hand() -> None:
    only = Expansion(torch.tensor([[1.0, -1.0]]), torch.zeros(2), "relu")
    state = count_block(
        (1, 3),
        embeddings=torch.tensor([[9.0], [3.0], [-2.0]]),
        labels=torch.tensor([0, 0, 1]),
        weights=torch.tensor([1.0, 0.5, 2.0]),
        expand=only,
        width=2,
    )  # features (3, 0) at weight 1/2 and (0, 2) at weight 2; the first node is not its business
    assert state["gram"].tolist() == pytest.approx([4.5, 0.0, 8.0])
    assert state["sums"].tolist() == [[1.5, 0.0], [0.0, 4.0]]
    assert state["counts"].tolist() == [1, 1]


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("rank", [None, 11])
def test_several_count_what_one_does(rank: int | None, ray_engine: RayEngine) -> None:
    alone = counted(Resources(), rank=rank)
    for engine in (Several(3), ray_engine):
        found = counted(Resources(engine=engine), rank=rank)
        torch.testing.assert_close(found.gram_.tril(), alone.gram_.tril(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.sums_, alone.sums_, rtol=1e-6, atol=1e-6)
        assert torch.equal(found.counts_, alone.counts_)
        assert int(found.counts_.sum()) == 51


# ------------------------------------------------------------------ several views


def views() -> RandomMap:
    sizes = {0: 3, 2: 3, CODES: 4}
    return RandomMap.drawn(parse_views(["0|2+y", "2", "y"]), sizes, width=WIDTH, seed=3)


def seen(count: int = 50) -> tuple[ViewRows, Tensor, Tensor]:
    """Return some of 80 nodes in any order, so that rows have to be looked up."""
    draw = torch.Generator().manual_seed(4)
    everyone = torch.randn(80, 6, generator=draw), torch.randn(80, 4, generator=draw)
    _, labels, weights = nodes(count)
    return ViewRows(*everyone, torch.randperm(80, generator=draw)[:count]), labels, weights


def counted_views(resources: Resources, *, gone: int = 0) -> list[ClassStatistics]:
    statistics = [ClassStatistics(WIDTH) for _ in range(3)]
    for each in statistics:
        each.add(torch.ones(1, WIDTH), torch.tensor([5]), torch.ones(1))  # known before
    statistics = count_views(statistics, *seen(), expand=views(), resources=resources)
    if not gone:
        return statistics
    rows, labels, weights = seen()
    return count_views(
        statistics, rows[:gone], labels[:gone], weights[:gone],
        expand=views(), resources=resources, sign=-1,
    )  # fmt: skip


def assert_close(found: list[ClassStatistics], expected: list[ClassStatistics]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.gram_.tril(), other.gram_.tril(), rtol=1e-5, atol=2e-5)
        torch.testing.assert_close(one.sums_, other.sums_, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(one.mass_, other.mass_)
        assert one.counts_.equal(other.counts_)


def test_every_view_is_counted_as_if_it_were_alone() -> None:
    rows, labels, weights = seen()
    for found, features in zip(counted_views(Resources()), views()(rows), strict=True):
        alone = ClassStatistics(WIDTH)
        alone.add(torch.ones(1, WIDTH), torch.tensor([5]), torch.ones(1))
        alone.add(features, labels, weights)
        assert_close([found], [alone])


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("gone", [0, 20])
def test_several_count_views_as_one_does(gone: int, ray_engine: RayEngine) -> None:
    alone = counted_views(Resources(), gone=gone)
    assert int(alone[0].counts_.sum()) == 51 - gone
    for engine in (Several(3), ray_engine):
        assert_close(counted_views(Resources(engine=engine), gone=gone), alone)


@pytest.mark.usefixtures("_small_blocks")
def test_any_number_of_workers_counts_the_same_bits_of_views() -> None:
    first, second = (counted_views(Resources(engine=Several(w))) for w in (2, 5))
    for one, other in zip(first, second, strict=True):
        assert all(value.equal(other.state()[name]) for name, value in one.state().items())


def test_nodes_counted_out_are_gone() -> None:
    rows, labels, weights = seen()
    fresh = [ClassStatistics(WIDTH) for _ in range(3)]
    rest = count_views(
        fresh, rows[20:], labels[20:], weights[20:], expand=views(), resources=Resources()
    )
    for each in rest:
        each.add(torch.ones(1, WIDTH), torch.tensor([5]), torch.ones(1))
    assert_close(counted_views(Resources(), gone=20), rest)
