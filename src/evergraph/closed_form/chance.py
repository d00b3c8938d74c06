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


def class_lead(given: Tensor, right: Tensor) -> float:
    """Return how far class-balanced accuracy is above that of answers that know nothing.

    These give class c a share p_c of the time whatever is right, so they have accuracy p_c for
    class c, Σ_c p_c / C in the mean, with variance Σ_c p_c (1 - p_c) / n_c / C².

    given, right: int64 [n]

    >>> right = torch.tensor([0, 1]).repeat(50)
    >>> class_lead(right, right)  # (1 - 0.5) / √(2 · 0.25 / 50 / 4)
    10.0
    >>> class_lead(torch.zeros_like(right), right)  # the same for all
    0.0
    """
    classes, where = right.unique(return_inverse=True)
    if len(right) < FEWEST_ANSWERS or len(classes) < 2:
        return math.nan
    sizes = torch.bincount(where).double()
    found = torch.stack([(given == c).double().mean() for c in classes])  # p
    hits = torch.bincount(where, (given == right).double(), len(classes)) / sizes
    spread = float((found * (1 - found) / sizes).sum().sqrt())
    return float((hits - found).sum()) / spread if spread else 0.0


def value_lead(given: Tensor, right: Tensor) -> float:
    """Return how far the best column correlates with what is right: r √n, less for more columns.

    Of K columns that know nothing the best reaches about √(2 ln K).  float [n, K] each

    >>> right = torch.arange(100.0)[:, None]
    >>> round(value_lead(right, right), 6), value_lead(-right, right) < 0
    (10.0, True)
    """
    rows, columns = right.shape
    if rows < FEWEST_ANSWERS or not columns:
        return math.nan
    one, other = (values.double() - values.double().mean(0) for values in (given, right))
    lengths = (one.norm(dim=0) * other.norm(dim=0)).clamp_min(torch.finfo(torch.float64).tiny)
    shared = (one * other).sum(0) / lengths
    return float(shared.max()) * math.sqrt(rows) - math.sqrt(2 * math.log(columns))
