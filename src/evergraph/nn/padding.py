"""Old values at the size their parameter has grown to."""

from __future__ import annotations

import torch
from torch import Tensor


def padded(values: Tensor, like: Tensor) -> Tensor:
    """Return values on the device and at the size of ``like``, zero where it is new.

    >>> padded(torch.tensor([1.]), torch.empty(2))
    tensor([1., 0.])
    """
    result = torch.zeros_like(like, requires_grad=False)
    result[tuple(slice(size) for size in values.shape)] = values.to(like.device)
    return result
