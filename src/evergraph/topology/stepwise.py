"""An f_topo told hop by hop, so that it can be computed at some nodes only."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor


class Stepwise(ABC):
    """An f_topo that is a recursion over hops.

        H_0 = X,  H_{l+1} = advance(Â message(H_l), H_l, X),  E = assemble([H_0, ..., H_L])

    Only Â joins nodes. Each of the three works on every row by itself, and a row's bits must not
    depend on which other rows are there: whoever keeps all H_l can compute any rows anew and gets
    what computing all of them would give (see ``rowwise`` for what to beware of).

    An f_topo without such a recursion, as one of exact rings, is not ``Stepwise``: its embeddings
    are computed from their whole surroundings.
    """

    hops: int
    linear: ClassVar[bool] = False  # whether E = Σ_l c_l Â^l X with plain numbers c_l

    def message(self, state: Tensor, *, hop: int) -> Tensor:
        """Return what is smoothed to make hop + 1; the state itself unless overridden.

        state: H_hop.  [rows, width]; -> [rows, any width]
        """
        return state

    def advance(self, smoothed: Tensor, state: Tensor, features: Tensor, *, hop: int) -> Tensor:
        """Return the next state H_{hop+1}; what was smoothed unless overridden.

        smoothed: Â message(H_hop); state: H_hop; features: X; the same rows of each
        """
        return smoothed

    def assemble(self, states: Sequence[Tensor]) -> Tensor:
        """Return the embeddings; the last state unless overridden.  states: H_0 = X, ..., H_L"""
        return states[-1]

    @property
    def assembled(self) -> Sequence[int]:
        """Which states ``assemble`` looks at; it is given others too, or empty ones for them."""
        own = type(self).assemble is not Stepwise.assemble
        return range(self.hops + 1) if own else (self.hops,)


def coefficients(topology: Stepwise) -> list[float] | None:
    """Return c_0, ..., c_L with E = Σ_l c_l Â^l X, or None where there are none.

    The recursion runs on polynomials in Â, a column for each power: X is 1, and smoothing moves
    every coefficient to the next power.

    >>> from evergraph.topology import PPR
    >>> coefficients(PPR(hops=2, alpha=0.5))  # ((Â + I) / 2)²
    [0.25, 0.5, 0.25]
    """
    if not topology.linear:
        return None
    one = torch.zeros(1, topology.hops + 1, dtype=torch.float64)
    one[0, 0] = 1.0
    states = [one]
    for hop in range(topology.hops):
        smoothed = topology.message(states[-1], hop=hop).roll(1, dims=1)
        states.append(topology.advance(smoothed, states[-1], one, hop=hop))
    found: list[float] = topology.assemble(states)[0].tolist()
    return found
