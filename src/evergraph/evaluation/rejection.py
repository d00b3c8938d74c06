"""Whether nodes of classes never learned can be told from the others."""

from __future__ import annotations

import torch
from torch import Tensor


def rejection_auroc(known: Tensor, unknown: Tensor) -> float:
    """Return how often an unknown node looks more novel than a known one (AUROC).

    AUROC = P(s_unknown > s_known) + P(s_unknown = s_known) / 2, the rank statistic of Mann and
    Whitney: 0.5 is guessing, 1 tells them apart without fault. It asks for no threshold. NaN where
    a score is, or where one side has no nodes.

    known, unknown: novelty of nodes of learned classes and of others.  [n], [m] -> 0..1

    0.7 stands above both known scores, 0.3 above one and level with the other: (2 + 1.5) / 4.

    >>> rejection_auroc(torch.tensor([0.1, 0.3]), torch.tensor([0.7, 0.3]))
    0.875
    """
    if not (len(known) and len(unknown)) or bool(torch.cat([known, unknown]).isnan().any()):
        return float("nan")
    ranked = known.sort().values
    below = torch.searchsorted(ranked, unknown)  # known scores under each unknown one
    level = torch.searchsorted(ranked, unknown, right=True)  # and those level with it
    return float((below + level).double().mean() / (2 * len(known)))
