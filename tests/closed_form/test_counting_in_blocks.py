"""Nodes counted block by block are all counted, by however many workers, without Ray."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.closed_form import ClassStatistics, counting
from evergraph.closed_form.counting import with_counted
from evergraph.core.engine import LocalEngine
from evergraph.core.resources import Resources
from evergraph.nn.random_features import Expansion


class Several(LocalEngine):
    """One process that says it is several, and remembers what it was asked to do."""

    def __init__(self) -> None:
        self.workers = 3
        self.blocks: list[object] = []

    def map(self, work, pieces, *, shared):  # type: ignore[no-untyped-def]
        self.blocks = list(pieces)
        return super().map(work, pieces, shared=shared)


def counted(engine: LocalEngine) -> ClassStatistics:
    """Count 1, 2, 3, 4 and -5 through φ(x) = (relu(x), relu(-x)), the odd ones twice."""
    plus_and_minus = Expansion(torch.tensor([[1.0, -1.0]]), torch.zeros(2), "relu")
    statistics = ClassStatistics(2)
    statistics.add(torch.tensor([[0.0, 1.0]]), torch.tensor([2]), torch.ones(1))  # known before
    return with_counted(
        statistics,
        torch.tensor([[1.0], [2.0], [3.0], [4.0], [-5.0]]),
        torch.tensor([0, 1, 0, 1, 0]),
        torch.tensor([2.0, 1.0, 2.0, 1.0, 2.0]),
        expand=plus_and_minus,
        resources=Resources(engine=engine),
    )


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 100])
def test_every_block_counts_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "BLOCK_ROWS", rows)
    found = counted(Several())
    # 2·1 + 4 + 2·9 + 16 of the positive ones; 2·25 of the negative one, and 1 from before
    assert found.gram_.tril().tolist() == [[40.0, 0.0], [0.0, 51.0]]
    assert found.sums_.tolist() == [[8.0, 10.0], [6.0, 0.0], [0.0, 1.0]]
    assert found.mass_.tolist() == [6.0, 2.0, 1.0]
    assert found.counts_.tolist() == [3, 2, 1]


def test_what_fits_one_block_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Several()
    monkeypatch.setattr(counting, "BLOCK_ROWS", 5)
    counted(engine)
    assert engine.blocks == []
    monkeypatch.setattr(counting, "BLOCK_ROWS", 4)
    counted(engine)
    assert engine.blocks == [(0, 4), (4, 8)]


@given(rows=st.integers(1, 40), block=st.integers(1, 16), seed=st.integers(0, 9))
def test_one_process_counts_to_the_bit_what_several_do(rows: int, block: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    expand = Expansion(torch.randn(3, 8, generator=draw), torch.zeros(8), "relu")
    given_rows = torch.randn(rows, 3, generator=draw), torch.arange(rows) % 3, torch.ones(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "BLOCK_ROWS", block)
        one, many = (
            with_counted(
                ClassStatistics(8), *given_rows, expand=expand, resources=Resources(engine=engine)
            )
            for engine in (LocalEngine(), Several())
        )
    assert all(torch.equal(one.state()[name], many.state()[name]) for name in one.state())


def test_what_is_counted_in_float64_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Several()
    monkeypatch.setattr(counting, "BLOCK_ROWS", 1)
    expand = Expansion(torch.ones(1, 1), torch.zeros(1), "relu")
    tiny = torch.tensor([[1.0], [1e-5]])  # whose square is below float32's rounding of 1
    precise = with_counted(
        ClassStatistics(1, precise=True), tiny, torch.zeros(2, dtype=torch.long), torch.ones(2),
        expand=expand, resources=Resources(engine=engine),
    )  # fmt: skip
    assert engine.blocks == []
    assert float(precise.gram_) > 1.0


def test_compressed_statistics_of_nothing_have_a_state() -> None:
    statistics, other = ClassStatistics(4, rank=2), ClassStatistics(4, rank=2)
    statistics.grow(3)
    assert set(statistics.state()) == {"sums", "mass", "counts"}
    other.restore(statistics.state())
    assert other.counts_.tolist() == [0, 0, 0]
    other.add(torch.eye(4), torch.tensor([0, 1, 2, 2]), torch.ones(4))
    torch.testing.assert_close(other.gram_.diagonal(), torch.ones(4))
    assert {"factor", "rest"} <= set(other.state())
