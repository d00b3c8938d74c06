"""A linear head for several labels or numbers, in closed form, and how sure its labels are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.memory.target_statistics import TargetMoments, TargetStatistics
from evergraph.methods.balanced_ridge import TOLERANCE, solved

# Scores of a least-squares head lie between 0 and 1; so many times as much under a sigmoid.
STEEPNESS = 10.0


@dataclass(frozen=True, eq=False)
class TargetHead:
    """ŷ = Vᵀφ + b.

    Attributes:
        weights: V.  float64 [m, targets]
        offsets: b.  float64 [targets]
    """

    weights: Tensor
    offsets: Tensor


def target_ridge(
    statistics: TargetStatistics, regularisation: float, *, centred: bool
) -> TargetHead:
    """Return argmin Σ_i (y_it - v_tᵀφ_i - b_t)² + λ ‖v_t‖² for every target t, where it is known.

    v_t = (G + λ I)⁻¹ M_t, λ = ``regularisation`` x the mean of G's diagonal. ``centred``: G and M
    are those of features and values less their means, G - n φ̄φ̄ᵀ and M - n φ̄ȳᵀ, from the same sums,
    and b_t = ȳ_t - v_tᵀφ̄ is not penalised; without it b is 0. A target that is known of no node is
    answered with 0.

    Without centring, of labels of which every node has one, and as many nodes each, it is the head
    of classes (``balanced_ridge``), with either of its weights: there A is G / n and its right side
    M / n, n nodes a class. Elsewhere the head of classes lets every class count alike, and this one
    every node.
    """
    weights = torch.zeros(
        statistics.width, statistics.targets, dtype=torch.float64, device=statistics.device
    )
    offsets = weights.new_zeros(statistics.targets)
    for group in statistics.groups():
        part = statistics.moments(group)
        head = _solved(part, regularisation, centred=centred)
        weights[:, group], offsets[group] = head.weights, head.offsets
    return TargetHead(weights, offsets)


def _solved(moments: TargetMoments, regularisation: float, *, centred: bool) -> TargetHead:
    gram, cross = moments.gram.double(), moments.cross
    if not centred:
        return TargetHead(solved(gram, cross, regularisation), torch.zeros_like(moments.totals))
    mean, level = moments.sums / moments.count, moments.totals / moments.count
    gram = gram.addr(moments.sums, mean, alpha=-1)
    cross = cross.addr(moments.sums, level, alpha=-1)
    weights = solved(gram, cross, regularisation)
    return TargetHead(weights, level - mean @ weights)


def choose_target_regularisation(
    training: TargetStatistics,
    validation: TargetStatistics,
    ladder: Sequence[float],
    *,
    centred: bool,
) -> float:
    """Return the least regularisation whose error on validation nodes is nearly the smallest.

    The error is the squared one in closed form, see ``squared_errors``; of numbers (``centred``)
    each target's as a share of its variance, so that none counts for more for being written in
    smaller units. Nearly: as ``choose_regularisation`` has it.
    """
    training = training.narrowed(validation.width)
    errors = []
    for regularisation in ladder:
        head = target_ridge(training, regularisation, centred=centred)
        errors.append(float(squared_errors(validation, head, relative=centred).sum()))
    limit = (1 + TOLERANCE) * min(errors)
    return min(r for r, error in zip(ladder, errors, strict=True) if error <= limit)


def squared_errors(
    statistics: TargetStatistics, head: TargetHead, *, relative: bool = False
) -> Tensor:
    """Return Σ_i (y_it - v_tᵀφ_i - b_t)² of every target, over nodes that have it.  -> [targets]

    = Σ y² + n b² + vᵀ G v - 2 b Σ y - 2 vᵀ M + 2 b vᵀ Σφ: from sums, no node is needed. relative:
    as a share of Σ (y - ȳ)².
    """
    errors = torch.zeros_like(head.offsets)
    for group in statistics.groups():
        part = statistics.moments(group)
        v, b = head.weights[:, group], head.offsets[group]
        error = part.squares + part.count * b.square() + quadratic(part.gram, v)
        error += 2 * (b * (part.sums @ v) - b * part.totals - (v * part.cross).sum(0))
        if relative:
            spread = part.squares - part.totals.square() / part.count
            error /= spread.clamp_min(1e-12 * part.squares.clamp_min(1e-30))
        errors[group] = error.clamp_min(0.0)
    return errors


def quadratic(gram: Tensor, vectors: Tensor) -> Tensor:
    """Return vᵀ G v of every column.  lower triangle [m, m], float64 [m, k] -> [k]"""
    lower = gram.double().tril()
    diagonal = lower.diagonal()
    # Twice the lower triangle counts the diagonal once too often.
    twice = 2 * (vectors * (lower @ vectors)).sum(0)
    return twice - (vectors.square() * diagonal[:, None]).sum(0)


def fitted_sigmoid(statistics: TargetStatistics, head: TargetHead) -> tuple[Tensor, Tensor]:
    """Return a and c of p_t = σ(a_t s_t + c_t), the probability of a label of score s_t.

    Scores of nodes with a label and of nodes without it are taken for normal with one variance, so
    that a = (μ₊ - μ₋) / σ² and c = log(n₊ / n₋) - a (μ₊ + μ₋) / 2, with means and variance from
    sums over held-back nodes: μ₊ = vᵀM / n₊, μ₋ = vᵀ(Σφ - M) / n₋, σ² = (vᵀGv - n₊μ₊² - n₋μ₋²) / n.
    A label that all of them have, or none, or whose mean is not above the others', gets the fixed
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
        variance = (within / part.count).clamp_min(1e-6)  # as of a score that is 0.001 apart
        a = (high - low) / variance
        c = (having.clamp_min(1) / lacking.clamp_min(1)).log() - a * (high + low) / 2
        sound = some & (a > 0)
        slope[group] = a.where(sound, slope[group])
        shift[group] = c.where(sound, shift[group])
    return slope, shift
