"""Full batch or mini-batches: an argument, not another loop."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

Batch = Tensor | slice
EVERYTHING = slice(None)


def batches(
    count: int, batch_size: int | None, *, generator: torch.Generator, device: torch.device
) -> Iterator[Batch]:
    """Yield the rows of each batch of one epoch: all at once, or shuffled parts of nearly one size.

    A full batch is a slice, so that nothing is copied. Parts differ by one row at most, so that
    no epoch ends on a tiny, noisy step.

    >>> [len(b) for b in batches(10, 4, generator=torch.Generator(), device=torch.device("cpu"))]
    [4, 3, 3]
    """
    if batch_size is None or count <= batch_size:
        yield EVERYTHING
        return
    order = torch.randperm(count, generator=generator).to(device)
    yield from order.tensor_split(-(-count // batch_size))
