"""When sums have lost digits to what was taken out of them again."""

from __future__ import annotations

import torch
from torch import Tensor

# So many times what is left may have been in the sums: of the 16 digits of float64, 4 are lost.
LOSS = 1e4


class Wear:
    """Remembers how large sums have ever been, for what rounding has left in them.

    A sum that has held a term t is off by about 1e-16 t when that term is gone. With vectors of
    unit length no term is large. With others a node far out may be a hundred million times as long
    as the rest, and its square takes all the digits: what is left after it was counted out is more
    rounding than it is the others. Sums that are less than 1 / ``LOSS`` of what they have been are
    to be counted anew.

    Attributes:
        peak_: the largest size since sums were last counted anew.  float64 [sums]

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
        """Note how large sums are; return whether they are to be counted anew.  [sums]

        sizes: sums of squares of what was counted, never 0 where something was.
        """
        sizes = sizes.double()
        if len(self.peak_) != len(sizes):  # other sums than before
            self.renew(sizes)
            return not bool(sizes.isfinite().all())
        # So are sizes that are no numbers any more, or that rounding has left below 0.
        if not bool((sizes * LOSS >= self.peak_).all()):
            return True
        self.peak_ = torch.maximum(self.peak_, sizes)
        return False

    def renew(self, sizes: Tensor) -> None:
        """Begin again with sums that were counted anew."""
        self.peak_ = sizes.double().clone()

    def state(self) -> dict[str, Tensor]:
        """Return what is remembered."""
        return {"peak": self.peak_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.peak_ = state["peak"]
