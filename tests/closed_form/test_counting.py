"""Statistics counted block by block: of all nodes once, and the same for any number of workers."""

import pickle

import pytest
import torch
from torch import Tensor

from evergraph.closed_form import ClassStatistics, statistics
from evergraph.closed_form.statistics import count_views
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import CODES, ViewRows, parse_views
from evergraph.core.resources import LocalEngine, Resources
from evergraph.nn.random_features import Expansion
from view_rows import view_rows

WIDTH = 12


class Several(LocalEngine):
    """One process that is given its work as several are: pickled, and block by block."""

    def __init__(self, workers: int = 3) -> None:
        self.workers = workers
        self.blocks: list[object] = []

    def map(self, work, pieces, *, shared):
        self.blocks = list(pieces)
        work, shared = pickle.loads(pickle.dumps((work, shared)))  # noqa: S301
        return super().map(work, self.blocks, shared=shared)


# ------------------------------------------------------------------ by hand


def counted_by_hand(engine: LocalEngine) -> ClassStatistics:
    """Count 1, 2, 3, 4 and -5 through φ(x) = (relu(x), relu(-x)), the odd ones twice."""
    plus_and_minus = Expansion(torch.tensor([[1.0, -1.0]]), torch.zeros(2), "relu")
    statistics = ClassStatistics(2)
    statistics.add(torch.tensor([[0.0, 1.0]]), torch.tensor([2]), torch.ones(1))  # known before
    (counted,) = count_views(
        [statistics],
        torch.tensor([[1.0], [2.0], [3.0], [4.0], [-5.0]]),
        torch.tensor([0, 1, 0, 1, 0]),
        torch.tensor([2.0, 1.0, 2.0, 1.0, 2.0]),
        expand=plus_and_minus,
        resources=Resources(engine=engine),
    )
    return counted


@pytest.mark.parametrize(
    ("rows", "blocks"), [(1, 5), (2, 3), (4, 2), (5, 0), (100, 0)]
)  # what fits one block is not given out
def test_every_block_counts_once(rows, blocks, monkeypatch):
    engine = Several()
    monkeypatch.setattr(statistics, "BLOCK_ROWS", rows)
    found = counted_by_hand(engine)
    assert engine.blocks == [(rows * place, rows * (place + 1)) for place in range(blocks)]
    # 2·1 + 4 + 2·9 + 16 of the positive ones; 2·25 of the negative one, and 1 from before
    assert found.gram_.tril().tolist() == [[40.0, 0.0], [0.0, 51.0]]
    assert found.sums_.tolist() == [[8.0, 10.0], [6.0, 0.0], [0.0, 1.0]]
    assert found.mass_.tolist() == [6.0, 2.0, 1.0]
    assert found.counts_.tolist() == [3, 2, 1]


def test_what_is_counted_in_float64_stays_so(monkeypatch):
    monkeypatch.setattr(statistics, "BLOCK_ROWS", 1)
    expand = Expansion(torch.ones(1, 1), torch.zeros(1), "relu")
    tiny = torch.tensor([[1.0], [1e-5]])  # whose square is below float32's rounding of 1
    for resources in (Resources(engine=Several()), None):
        (counted,) = count_views(
            [ClassStatistics(1, precise=True)],
            tiny,
            torch.zeros(2, dtype=torch.long),
            torch.ones(2),
            expand=expand,
            resources=resources,
        )
        assert float(counted.gram_) > float(torch.tensor(2**0.5).square())


# ------------------------------------------------------------------ several views


def views() -> RandomMap:
    sizes = {0: 3, 2: 3, CODES: 4}
    return RandomMap.drawn(parse_views(["0|2+y", "2", "y"]), sizes, width=WIDTH, seed=3)


def seen() -> tuple[ViewRows, Tensor, Tensor]:
    """Return 50 of 80 nodes in any order, so that rows have to be looked up."""
    draw = torch.Generator().manual_seed(4)
    everyone = torch.randn(80, 6, generator=draw), torch.randn(80, 4, generator=draw)
    rows = view_rows(*everyone, torch.randperm(80, generator=draw)[:50], kept=(0, 2))
    labels = torch.randint(4, (50,), generator=draw)
    return rows, labels, torch.rand(50, generator=draw) + 0.1


def counted_views(engine: LocalEngine | None = None) -> list[ClassStatistics]:
    """Count all nodes, then the first 20 out again."""
    resources = Resources() if engine is None else Resources(engine=engine)
    statistics = [ClassStatistics(WIDTH) for _ in range(3)]
    for each in statistics:
        each.add(torch.ones(1, WIDTH), torch.tensor([5]), torch.ones(1))  # known before
    rows, labels, weights = seen()
    statistics = count_views(statistics, rows, labels, weights, expand=views(), resources=resources)
    return count_views(
        statistics,
        rows[:20],
        labels[:20],
        weights[:20],
        expand=views(),
        resources=resources,
        sign=-1,
    )


def assert_close(one: ClassStatistics, other: ClassStatistics) -> None:
    torch.testing.assert_close(one.gram_.tril(), other.gram_.tril(), rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(one.sums_, other.sums_, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(one.mass_, other.mass_)
    assert one.counts_.equal(other.counts_)


def test_every_view_is_counted_as_if_it_were_alone_and_who_goes_is_gone():
    rows, labels, weights = seen()
    for found, features in zip(counted_views(), views()(rows), strict=True):
        alone = ClassStatistics(WIDTH)
        alone.add(torch.ones(1, WIDTH), torch.tensor([5]), torch.ones(1))
        alone.add(features[20:], labels[20:], weights[20:])
        assert_close(found, alone)


def test_several_count_views_as_one_does(monkeypatch):
    whole = counted_views()
    monkeypatch.setattr(statistics, "BLOCK_ROWS", 7)
    one, two, five = map(counted_views, (LocalEngine(), Several(2), Several(5)))
    for first, second, third, alone in zip(one, two, five, whole, strict=True):
        for name, value in first.state().items():
            assert value.equal(second.state()[name])
            assert value.equal(third.state()[name])
        assert_close(first, alone)
