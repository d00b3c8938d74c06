"""Confident predictions used as labels for self-training."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.closed_form.ledger import LedgerEntries

# Predictions used per labelled node of a class.
TIMES = 6
# Unlabelled nodes per labelled one from which self-training can help.
PLENTY = 3


def certain(chances: Tensor, counts: Tensor, *, times: int = TIMES) -> tuple[Tensor, Tensor]:
    """Return the most confident predictions of each class, ``times`` its number of labelled nodes.

    Self-training (Scudder 1965; Lee 2013) with a quota for each class, so that easy classes do not
    crowd out the rest.

    chances: probability of every class.  [n, classes]; counts: labelled nodes.  int64 [classes]
    -> positions, grouped by class, and the predicted classes.  int64 each

    >>> chances = torch.tensor([[.9, .1], [.8, .2], [.6, .4], [.3, .7]])
    >>> certain(chances, torch.tensor([1, 1]), times=2)
    (tensor([0, 1, 3]), tensor([0, 0, 1]))
    """
    sure, guessed = (found.cpu() for found in chances.max(dim=1))
    order = sure.argsort(descending=True, stable=True)
    order = order[guessed[order].argsort(stable=True)]  # by class, the most confident first
    met = torch.bincount(guessed, minlength=len(counts))
    rank = torch.arange(len(order)) - (met.cumsum(0) - met)[guessed[order]]
    places = order[rank < times * counts.cpu()[guessed[order]]]
    return places, guessed[places]


def guessed(scores: Tensor, ids: Tensor, train: LedgerEntries) -> LedgerEntries:
    """Return confidently classified nodes, each weighted as a training node of its class is.

    scores: of nodes that are not labelled.  [n, classes]; ids: int64 [n]
    """
    counts = torch.bincount(train.labels, minlength=scores.shape[1])
    scores = scores.masked_fill((counts == 0).to(scores.device), -torch.inf)
    places, labels = certain(scores.softmax(1), counts)
    weights = torch.zeros(len(counts)).index_add_(0, train.labels, train.weights) / counts
    return LedgerEntries(ids[places], labels, weights[labels])
