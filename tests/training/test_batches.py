"""An epoch reads every row once, in pools of blocks where rows are many."""

import sys

import torch

from evergraph.training.trainer import batches

MODULE = "evergraph.training.trainer"

CPU = torch.device("cpu")


def drawn(count: int, size: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(batches(count, size, generator=generator, device=CPU))


def test_every_row_comes_once_in_pools_of_whole_blocks(monkeypatch):
    monkeypatch.setitem(vars(sys.modules[MODULE]), "POOL", 40)
    monkeypatch.setitem(vars(sys.modules[MODULE]), "ROWS_PER_BLOCK", 8)
    rows = torch.cat(drawn(100, 7))
    assert rows.sort().values.equal(torch.arange(100))
    assert not rows.equal(torch.arange(100))
    assert torch.cat(drawn(100, 7)).equal(rows)  # the seed alone decides
    assert not torch.cat(drawn(100, 7, seed=1)).equal(rows)
    rows = torch.cat(drawn(80, 8))  # 10 blocks of 8, 2 pools of 5 blocks
    for pool in (rows[:40], rows[40:]):
        assert len((pool // 8).unique()) == 5
    assert (rows[:40] // 8).unique_consecutive().numel() != 5  # mixed within a pool


def test_few_rows_are_shuffled_at_once():
    generator = torch.Generator().manual_seed(0)
    expected = torch.randperm(100, generator=generator)
    assert torch.cat(drawn(100, 7)).equal(expected)
