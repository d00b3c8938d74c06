"""Detection of sums that have lost digits to large terms which were subtracted again."""

from __future__ import annotations

import torch
from torch import Tensor

# Sums may shrink by this factor before they are recomputed: 4 of the 16 digits of float64 are lost.
LOSS = 1e4


class Wear:
    """Tracks the peak size of sums, which bounds the rounding error left in them.

    A sum that has held a term t is off by about 1e-16 t after t is subtracted. Vectors of unit
    length have no large terms. But without normalisation an outlier may be 1e8 times as long as the
    rest, and its square takes all digits: after it is subtracted, more rounding than signal is
    left. Sums below 1 / ``LOSS`` of their peak must therefore be recomputed.

    Attributes:
        peak_: the largest size since sums were last recomputed.  float64 [sums]

    >>> wear = Wear()
    >>> [wear.worn(torch.tensor([size])) for size in (5.0, 1e6, 10.0)]
    [False, False, True]
    >>> wear.renew(torch.tensor([10.0]))
    >>> wear.worn(torch.tensor([9.0]))
    False
    """

    def __init__(self) -> None:
        self.peak_ = torch.zeros(0, dtype=torch.float64)

    def worn(self, sizes: Tensor) -> bool:
        """Record sums of squares; return whether they must be recomputed.  [sums], 0 if empty"""
        sizes = sizes.double()
        if len(self.peak_) != len(sizes):  # other sums than before
            self.renew(sizes)
            return not bool(sizes.isfinite().all())
        # Written so that NaN, and sizes that rounding has made negative, count as worn.
        if not bool((sizes * LOSS >= self.peak_).all()):
            return True
        self.peak_ = torch.maximum(self.peak_, sizes)
        return False

    def renew(self, sizes: Tensor) -> None:
        """Start over with recomputed sums."""
        self.peak_ = sizes.double().clone()

    def state(self) -> dict[str, Tensor]:
        """Return the peaks."""
        return {"peak": self.peak_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.peak_ = state["peak"]
