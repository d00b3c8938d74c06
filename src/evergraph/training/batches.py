"""Full batches and mini-batches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

Batch = Tensor | slice
EVERYTHING = slice(None)
POOL = 1 << 18  # rows shuffled together
ROWS_PER_BLOCK = 1 << 12  # neighbouring rows that stay together in a pool


def batches(
    count: int, batch_size: int | None, *, generator: torch.Generator, device: torch.device
) -> Iterator[Batch]:
    """Yield the rows of each batch of one epoch: all at once, or shuffled parts of similar size.

    A full batch is a slice, so that nothing is copied. Parts differ by one row at most, so that
    no epoch ends on a tiny, noisy step. Beyond ``POOL`` rows, which may be on disk, blocks of
    neighbouring rows are shuffled first, and then the rows within each pool of blocks: an epoch
    reads the disk mostly in sequence.

    >>> [len(b) for b in batches(10, 4, generator=torch.Generator(), device=torch.device("cpu"))]
    [4, 3, 3]
    """
    if batch_size is None or count <= batch_size:
        yield EVERYTHING
        return
    for order in _pools(count, generator):
        yield from order.to(device).tensor_split(-(-len(order) // batch_size))


def _pools(count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield every row once, shuffled pool by pool."""
    if count <= POOL:
        yield torch.randperm(count, generator=generator)
        return
    blocks = torch.arange(count).tensor_split(-(-count // ROWS_PER_BLOCK))
    order = torch.randperm(len(blocks), generator=generator)
    for part in order.tensor_split(-(-count // POOL)):
        rows = torch.cat([blocks[block] for block in part.tolist()])
        yield rows[torch.randperm(len(rows), generator=generator)]
