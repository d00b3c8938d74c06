"""The loss of all settings and weightings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def masked_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    weights: Tensor,
    allowed: Tensor | None = None,
    offsets: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """Return the mean of ``weights · CE`` over rows, without classes outside ``allowed``.

    logits: [n, classes]; targets: int64 [n]; weights: [n]; allowed: bool [n, classes] or None;
    offsets: added to every row's logits, [classes] or None; smoothing: see ``masked_losses``.

    >>> loss = masked_cross_entropy(torch.zeros(1, 4), torch.tensor([1]), weights=torch.ones(1),
    ...                             allowed=torch.tensor([[True, True, False, False]]))
    >>> round(float(loss.exp()), 4)  # two equally likely classes are left
    2.0
    """
    if offsets is not None:
        logits = logits + offsets
    losses = masked_losses(logits, targets, allowed=allowed, smoothing=smoothing)
    return torch.dot(weights, losses) / len(targets)


def masked_losses(
    logits: Tensor, targets: Tensor, *, allowed: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Return the cross-entropy of every row, without classes outside ``allowed``.  -> [n]

    smoothing: share of the target that is spread evenly over the allowed classes.
    """
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    losses = cross_entropy(logits, targets, reduction="none")
    if not smoothing:
        return losses
    is_allowed = logits.detach() > -torch.inf
    # Torch's own smoothing gives infinity.
    logs = logits.log_softmax(1).masked_fill(~is_allowed, 0.0)
    return (1 - smoothing) * losses - smoothing * logs.sum(1) / is_allowed.sum(1)


def term_weights(weights: Tensor, terms: Tensor) -> Tensor:
    """Rescale weights so that the mean of ``w_i · l_i`` is Σ_g Σ_{i∈g} w_i l_i / Σ_{i∈g} w_i.

    Each term g is a weighted mean of its own rows; their sum is the loss. The rescaled weights
    belong to the whole training set, so a mini-batch's mean estimates the same sum without bias.

    weights: [n]; terms: int64 [n]; -> [n]
    """
    if not len(weights):
        return weights
    totals = torch.zeros(int(terms.max()) + 1, dtype=weights.dtype, device=weights.device)
    totals.index_add_(0, terms, weights)
    return weights * (len(weights) / totals[terms])


def class_balanced(targets: Tensor) -> Tensor:
    """Return 1 / n_c for each row's class c, counted on these rows.  int64 [n] -> float32 [n]"""
    return torch.bincount(targets).float().clamp_min(1.0).reciprocal()[targets]


def log_prior(targets: Tensor, classes: int) -> Tensor:
    """Return log(n_c / n) of every class, counted on these rows.  int64 [n] -> float32 [classes]

    Added to logits in a loss, it makes the logits alone those of balanced classes (Menon et al.
    2021, logit adjustment). A class without rows has -inf: it is left out of the loss. A softmax
    ignores constants, so under a mask this is the prior within the allowed classes.

    >>> log_prior(torch.tensor([0, 2, 2, 2]), 3).exp()
    tensor([0.2500, 0.0000, 0.7500])
    """
    return (torch.bincount(targets, minlength=classes) / max(len(targets), 1)).log()
