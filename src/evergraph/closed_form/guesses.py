"""What a learner is sure of, taken as if it had been told."""

from __future__ import annotations

import torch
from torch import Tensor

# Guesses taken of a class, for each of its labelled nodes.
TIMES = 6
# Nodes without label, for each with one, from which on guessing can pay.
PLENTY = 3


def certain(chances: Tensor, counts: Tensor, *, times: int = TIMES) -> tuple[Tensor, Tensor]:
    """Return the surest guesses of each class, ``times`` as many as it has labelled nodes.

    Self-training (Scudder 1965; Lee 2013) with a quota for each class, so that those that are
    easily guessed do not crowd out the rest.

    chances: of every class.  [n, classes]; counts: labelled nodes.  int64 [classes]
    -> places, ascending by class, and the classes guessed.  int64 each

    >>> chances = torch.tensor([[.9, .1], [.8, .2], [.6, .4], [.3, .7]])
    >>> certain(chances, torch.tensor([1, 1]), times=2)
    (tensor([0, 1, 3]), tensor([0, 0, 1]))
    """
    sure, guessed = (found.cpu() for found in chances.max(dim=1))
    order = sure.argsort(descending=True, stable=True)
    order = order[guessed[order].argsort(stable=True)]  # by class, the surest first
    met = torch.bincount(guessed, minlength=len(counts))
    rank = torch.arange(len(order)) - (met.cumsum(0) - met)[guessed[order]]
    places = order[rank < times * counts.cpu()[guessed[order]]]
    return places, guessed[places]
