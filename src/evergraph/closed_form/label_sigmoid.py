"""Probabilities of labels from the scores of a least-squares head."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.closed_form.targets import TargetStatistics, TargetWeights, quadratic

# Scores of a least-squares head lie between 0 and 1; a sigmoid needs them multiplied by this.
STEEPNESS = 10.0


def fitted_sigmoid(statistics: TargetStatistics, head: TargetWeights) -> tuple[Tensor, Tensor]:
    """Return a and c of p_t = σ(a_t s_t + c_t), the probability of a label with score s_t.

    Scores of nodes with and without a label are assumed normal with one variance, so that
    a = (μ₊ - μ₋) / σ² and c = log(n₊ / n₋) - a (μ₊ + μ₋) / 2, with means and variance from
    sums over held-back nodes: μ₊ = vᵀM / n₊, μ₋ = vᵀ(Σφ - M) / n₋, σ² = (vᵀGv - n₊μ₊² - n₋μ₋²) / n.
    A label that all of them have, or none, or with μ₊ not above μ₋, gets the fixed
    a = 10, c = -5.  -> float64 [targets] each
    """
    slope = torch.full_like(head.offsets, STEEPNESS)
    shift = -slope / 2
    for group in statistics.groups():
        part = statistics.moments(group)
        v = head.weights[:, group]
        having, lacking = part.totals, part.count - part.totals
        some = (having > 0.5) & (lacking > 0.5)
        high = (v * part.cross).sum(0) / having.clamp_min(1)
        low = (part.sums @ v - (v * part.cross).sum(0)) / lacking.clamp_min(1)
        within = quadratic(part.gram, v) - having * high.square() - lacking * low.square()
        variance = (within / part.count).clamp_min(1e-6)  # as if scores differed by 0.001
        a = (high - low) / variance
        c = (having.clamp_min(1) / lacking.clamp_min(1)).log() - a * (high + low) / 2
        sound = some & (a > 0)
        slope[group] = a.where(sound, slope[group])
        shift[group] = c.where(sound, shift[group])
    return slope, shift
