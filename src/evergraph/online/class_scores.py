"""Scores of the classes that a node can have."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.online.heads import Scorer


def class_scores(scorer: Scorer, met: Tensor, ids: Tensor, vectors: Tensor) -> Tensor:
    """Return the scores of all classes, -inf for those that have no node (any more).

    met: bool [classes]; ids, vectors: see ``Scorer``; -> float32 [n, classes]

    >>> class Fixed(Scorer):
    ...     def __call__(self, ids, vectors): return vectors
    >>> class_scores(Fixed(), torch.tensor([True, False, True]), torch.tensor([0]),
    ...              torch.tensor([[1., 2.]]))  # the third class is too new for the scorer
    tensor([[1., -inf, -inf]])
    """
    known = scorer(ids, vectors)
    scores = torch.full((len(ids), len(met)), -torch.inf)
    scores[:, : known.shape[1]] = known[:, : len(met)]
    return scores.masked_fill_(~met, -torch.inf)
