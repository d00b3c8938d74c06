"""How much of what varies is the method, and how much is the protocol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Shares:
    """Shares of the variance of some numbers; they sum to 1, or are all 0 where nothing varies.

    Attributes:
        method: of the methods' means.
        protocol: of the protocols' means.
        together: what the two say together and neither alone: methods change places.
        seed: what is left between repeats.
    """

    method: float
    protocol: float
    together: float
    seed: float


def shares(values: npt.NDArray[np.float64]) -> Shares:
    """Take the variance of x apart, as an analysis of variance of two factors does.

    Over methods m, protocols p and seeds s, with a dot for the mean over what it replaces,
    Σ (x_mps - x...)² = Σ (x_m.. - x...)² + Σ (x_.p. - x...)² + Σ (x_mp. - x_m.. - x_.p. + x...)²
    + Σ (x_mps - x_mp.)².

    values: x.  [methods, protocols, seeds]

    >>> shares(np.array([[[1.0], [3.0]], [[5.0], [7.0]]]))
    Shares(method=0.8, protocol=0.2, together=0.0, seed=0.0)
    """
    mean = values.mean()
    method, protocol = values.mean((1, 2)) - mean, values.mean((0, 2)) - mean
    cells = values.mean(2)
    left = cells - mean - method[:, None] - protocol[None, :]
    parts = (method[:, None, None], protocol[None, :, None], left[..., None])
    squares = [float((np.broadcast_to(part, values.shape) ** 2).sum()) for part in parts]
    squares.append(float(((values - cells[..., None]) ** 2).sum()))
    whole = sum(squares) or 1.0
    return Shares(*(square / whole for square in squares))
