"""Whether answers are better than chance, as a lead in standard errors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Fewer answers say nothing about chance; and the lead, in standard errors, from which they are
# called better: penalties and mixture were chosen on the same answers.
FEWEST_ANSWERS, LEAD = 30, 3.0


def is_better(lead: float) -> bool | None:
    """Return whether a lead is one; None if it is not known.

    >>> is_better(4.0), is_better(0.0), is_better(math.nan)
    (True, False, None)
    """
    return None if math.isnan(lead) else lead > LEAD


def lead_over_chance(given: Tensor, right: Tensor) -> float:
    """Return how far the best column correlates with what is right: r √n, less for more columns.

    Of K columns that know nothing the best reaches about √(2 ln K). Columns are numbers, or the
    probability of a class and whether a node has it: a rare class, which no node is given, may well
    be known better than by chance.  float [n, K] each; NaN for few answers

    >>> right = torch.arange(100.0)[:, None]
    >>> round(lead_over_chance(right, right), 6), lead_over_chance(-right, right) < 0
    (10.0, True)
    >>> round(lead_over_chance(right.expand(-1, 2), right.expand(-1, 2)), 6)  # 10 - √(2 ln 2)
    8.82259
    """
    rows, columns = right.shape
    if rows < FEWEST_ANSWERS or not columns:
        return math.nan
    one, other = (values.double() - values.double().mean(0) for values in (given, right))
    lengths = (one.norm(dim=0) * other.norm(dim=0)).clamp_min(torch.finfo(torch.float64).tiny)
    shared = (one * other).sum(0) / lengths
    return float(shared.max()) * math.sqrt(rows) - math.sqrt(2 * math.log(columns))
