"""Statistics counted by several: the same for any number of workers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from evergraph.core.engine import LocalEngine
from evergraph.core.ray_engine import RayEngine
from evergraph.core.resources import Resources
from evergraph.memory import ClassStatistics, gathered_statistics
from evergraph.memory.gathered_statistics import count_block, with_counted
from evergraph.nn.expansion import Expansion

WIDTH = 12


class Several(LocalEngine):
    """One process that says it is several."""

    def __init__(self, workers: int) -> None:
        self.workers = workers


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_statistics, "BLOCK_ROWS", 7)


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
def test_any_number_of_workers_counts_the_same_bits() -> None:
    first, second = (counted(Resources(engine=Several(w))).state() for w in (2, 5))
    assert all(torch.equal(first[name], second[name]) for name in first)


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


def test_few_nodes_are_counted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody(Several):
        def map(self, *_: object, **__: object) -> None:  # type: ignore[override]
            raise AssertionError("nothing is given out")

    assert int(counted(Resources(engine=Nobody(2))).counts_.sum()) == 51
