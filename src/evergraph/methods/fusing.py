"""Several heads' scores mixed into one, as held-back nodes tell."""

from __future__ import annotations

import torch
from torch import Tensor

# Of one view alone where nothing tells: scores of a least-squares head lie between 0 and 1.
SHARPNESS = 10.0
# How much a weight is drawn to its share of ``SHARPNESS``, over how many held-back nodes there are:
# with few of them their voice is faint.
PRIOR = 0.02
STEPS = 50
TOLERANCE = 1e-9
BLOCK_VALUES = 1 << 20  # scores looked at a time: what is made of them is as large again


def fused_weights(
    scores: Tensor,
    labels: Tensor,
    *,
    allowed: Tensor | None = None,
    near: Tensor | None = None,
) -> Tensor:
    """Return the weights a ≥ 0 of heads whose mixture explains held-back nodes best.

    a = argmin Σ_c 1/n_c Σ_{i∈c} -log softmax(Σ_v a_v s_v(i))_c / C + (PRIOR/2n) ‖a - a_0‖²

    with s_v the scores of head v, n_c the held-back nodes of class c, n of all, C of how many
    classes. Every class counts alike. Σ_v a_v is the sharpness of the mixture, a / Σ a its shares:
    both in one. The function is convex, so there is one answer, whatever the order of nodes, heads
    and classes; it is found by Newton's method with projection. a_0 = ``SHARPNESS`` / heads.

    scores: [n, classes, heads]; labels: int64 [n]; allowed: which classes a node may be given, bool
    [n, classes], or [1, classes] where it is the same for all, all unless given; near: weights to
    look from first, such as those of yesterday, which saves steps; -> float64 [heads]

    >>> right = torch.tensor([[[1.], [0.]], [[0.], [1.]]])
    >>> both = torch.cat([right, 1 - right], dim=2)  # a head that is right, one that is wrong
    >>> fused_weights(both.repeat(50, 1, 1), torch.tensor([0, 1]).repeat(50)).round()
    tensor([9., 1.], dtype=torch.float64)
    """
    heads = scores.shape[2]
    start = torch.full((heads,), SHARPNESS / heads, dtype=torch.float64, device=scores.device)
    if not len(labels):
        return start
    problem = _Problem(scores.double(), labels.to(scores.device), allowed, start)
    weights = start if near is None else near.to(start)
    for _ in range(STEPS):
        step = problem.step(weights)
        weights = weights + step
        if float(step.abs().max()) < TOLERANCE * SHARPNESS:
            break
    return weights


class _Problem:
    def __init__(
        self, scores: Tensor, labels: Tensor, allowed: Tensor | None, start: Tensor
    ) -> None:
        counts = torch.bincount(labels).double()
        self.shares = counts[labels].reciprocal() / (counts > 0).sum()  # [n], sum 1
        self.scores = scores
        self.right = scores[torch.arange(len(labels), device=labels.device), labels]  # [n, heads]
        self.barred = None if allowed is None else ~allowed.to(scores.device)
        step = max(BLOCK_VALUES // max(scores[0].numel(), 1), 1)
        self.blocks = [slice(first, first + step) for first in range(0, len(labels), step)]
        self.start = start
        self.prior = PRIOR / len(labels)

    def loss(self, weights: Tensor) -> Tensor:
        """Return what is minimised."""
        parts = [self._mixed(weights, rows).logsumexp(1) for rows in self.blocks]
        total = torch.cat(parts) - self.right @ weights
        pull = (weights - self.start).square().sum()
        return (self.shares * total).sum() + self.prior / 2 * pull

    def _mixed(self, weights: Tensor, rows: slice) -> Tensor:
        mixed = self.scores[rows] @ weights
        if self.barred is None:
            return mixed
        barred = self.barred if len(self.barred) == 1 else self.barred[rows]
        return mixed.masked_fill_(barred, -torch.inf)

    def step(self, weights: Tensor) -> Tensor:
        """Return Newton's step among the weights that are not held at 0, halved until it helps."""
        gradient, hessian = self._slope(weights)
        free = (weights > 0) | (gradient < 0)
        step = torch.zeros_like(weights)
        if bool(free.any()):
            step[free] = -torch.linalg.solve(hessian[free][:, free], gradient[free])
        before, size = self.loss(weights), 1.0
        while size > TOLERANCE:
            moved = (weights + size * step).clamp_min(0.0)
            if self.loss(moved) <= before + 1e-4 * gradient @ (moved - weights):
                return moved - weights
            size /= 2
        return torch.zeros_like(weights)

    def _slope(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradient and Hessian.  -> [heads], [heads, heads]"""
        expected = torch.empty_like(self.right)
        spread = weights.new_zeros(len(weights), len(weights))
        for rows in self.blocks:
            scores, chances = self.scores[rows], self._mixed(weights, rows).softmax(1)
            expected[rows] = torch.einsum("nc,nch->nh", chances, scores)
            weighed = (self.shares[rows, None] * chances)[:, :, None] * scores
            spread += torch.einsum("nch,nck->hk", weighed, scores)
        gradient = self.shares @ (expected - self.right)
        spread -= (self.shares[:, None] * expected).t() @ expected
        eye = torch.eye(len(weights), dtype=spread.dtype, device=spread.device)
        # A little more than the prior: two heads that say the same must not make it singular.
        ridge = self.prior + 1e-12 * spread.diagonal().mean()
        return gradient + self.prior * (weights - self.start), spread + ridge * eye
