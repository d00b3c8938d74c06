"""Nodes arrive class after class, but borders between classes blur."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.core.seeding import seeded
from evergraph.streams.arrival import NOWHERE, Arrival, arrival_of


def blurred(
    labels: Tensor,
    *,
    classes: Sequence[int],
    tasks: int,
    blur: float = 1.0,
    together: int = 1,
    comes_back: bool = False,
    seed: int = 0,
) -> Arrival:
    """Return the arrival of nodes sorted by time and cut into batches of equal size.

    Without blur classes come one after the other, and batches take no notice of where one ends;
    with a little, neighbouring classes mix; with much, nodes come in no order at all. Many small
    batches make a stream that is met once and has no tasks.

    labels: int64 [nodes]; classes: those that arrive, in order; tasks: how many batches;
    together, comes_back: see ``arrival_times``.

    >>> blurred(torch.tensor([1, 1, 0, 0, 0, 1]), classes=[0, 1], tasks=2, blur=0.0).owner
    tensor([1, 1, 0, 0, 0, 1])
    """
    times = arrival_times(
        labels, classes=classes, blur=blur, together=together, comes_back=comes_back, seed=seed
    )
    here = times.isfinite().nonzero().flatten()
    order = here[times[here].argsort(stable=True)]
    owner = torch.full_like(labels, NOWHERE)
    for index, nodes in enumerate(order.tensor_split(tasks)):
        owner[nodes] = index
    return arrival_of(owner, labels, classes=classes, tasks=tasks)


def at_random(labels: Tensor, *, classes: Sequence[int], tasks: int, seed: int = 0) -> Arrival:
    """Return the arrival of nodes in no order at all, in batches of equal size.

    labels: int64 [nodes]; classes: those that arrive.

    >>> at_random(torch.tensor([0, 0, -1, 0, 0]), classes=[0], tasks=2).owner.sort().values
    tensor([-1,  0,  0,  1,  1])
    """
    here = torch.isin(labels, torch.tensor(classes))
    alike = torch.where(here, 0, NOWHERE)  # as if all were of one class
    order = blurred(alike, classes=[0], tasks=tasks, blur=0.0, seed=seed).owner
    return arrival_of(order, labels, classes=classes, tasks=tasks)


def arrival_times(
    labels: Tensor,
    *,
    classes: Sequence[int],
    blur: float,
    together: int = 1,
    comes_back: bool = False,
    seed: int,
) -> Tensor:
    """Return t_v = k + u_v + blur · ε_v, k the place of v's class among ``classes``.

    u_v is uniform on 0..1 and ε_v standard normal, drawn from the seed and the node's number
    alone; nodes of no class that arrives come at infinity. So at time t a class has the share
    w_k(t) ∝ n_k · p_k(t) of what comes, n_k its nodes and p_k a bump around k + 1/2 of standard
    deviation √(blur² + 1/12): Gaussian mixing curves, as in DRIFT (Sun et al. 2026).

    labels: int64 [nodes]; together: how many neighbouring classes have one place; comes_back:
    whether time is a circle, on which what would come after the end comes at the beginning and the
    other way round: the first classes come back with the last ones.  -> float64 [nodes]
    """
    width = int(labels.max()) + 2  # the last place is for unlabelled nodes, numbered -1
    place = torch.full((width,), torch.inf, dtype=torch.float64)
    places = torch.arange(len(classes)) // together
    place[list(classes)] = places.double()
    inside = _uniform(len(labels), seeded(seed, "arrival", "inside"))
    # By the inverse of the distribution: torch.randn draws in blocks, in which a node's number
    # depends on how many nodes there are.
    noise = torch.special.ndtri(_uniform(len(labels), seeded(seed, "arrival", "blur")))
    times: Tensor = place[labels] + inside + blur * noise
    if comes_back:
        here = times.isfinite()
        times[here] = times[here].remainder(float(places[-1]) + 1)
    return times


def _uniform(count: int, generator: torch.Generator) -> Tensor:
    """Draw numbers above 0 and below 1.  -> float64 [count]"""
    draws = torch.rand(count, dtype=torch.float64, generator=generator)
    return draws.clamp_min_(2.0**-54)
