"""How many distinct things were seen, from a few bytes: HyperLogLog."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError

# A register holds at most this. A rank above it has a chance of 2^-40 a node, and sums of
# 2^(TOP - rank) over all registers are whole numbers that an int64 holds.
TOP = 40
MOST_REGISTERS = 1 << 15
LEAST_REGISTERS = 8
SEED = 0x9E3779B97F4A7C15
_BLOCK = 1 << 20


def check_registers(registers: int) -> None:
    """Raise unless so many registers can be had."""
    sound = isinstance(registers, int) and registers > 0 and registers & (registers - 1) == 0
    if not sound or not LEAST_REGISTERS <= registers <= MOST_REGISTERS:
        raise ConfigurationError(
            f"registers must be a power of two from {LEAST_REGISTERS} to {MOST_REGISTERS}, "
            f"not {registers!r}"
        )


def hashed(nodes: int, registers: int, *, seed: int = SEED) -> tuple[Tensor, Tensor]:
    """Return which register each node fills and with what.  int16 [nodes], uint8 [nodes]

    Register: the low bits of a hash. Rank: 1 + the leading zeros of its high 48, so that rank r
    has a chance of 2^-r. Nothing is drawn: a node number has the same hash everywhere.
    """
    column, rank = torch.empty(nodes, dtype=torch.int16), torch.empty(nodes, dtype=torch.uint8)
    for start in range(0, nodes, _BLOCK):
        stop = min(start + _BLOCK, nodes)
        hashes = splitmix64(np.arange(start, stop, dtype=np.uint64), seed)
        low = hashes & np.uint64(registers - 1)
        _, bits = np.frexp((hashes >> np.uint64(16)).astype(np.float64))
        column[start:stop] = torch.from_numpy(low.astype(np.int16))
        rank[start:stop] = torch.from_numpy(np.minimum(49 - bits, TOP).astype(np.uint8))
    return column, rank


def splitmix64(numbers: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return numbers without pattern for numbers with one (Steele, Lea and Flood 2014).

    >>> int(splitmix64(np.array([0], dtype=np.uint64), 0x9E3779B97F4A7C15)[0])
    16294208416658607535
    """
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def distinct_count(sums: Tensor, registers: int) -> Tensor:
    """Return estimates of how many nodes filled some registers M_1 .. M_m, m = ``registers``.

        m² / (2 ln 2) / (m σ(Z/m) + Σ_{M_j > 0} 2^-M_j),   σ(x) = x + Σ_{k≥1} x^{2^k} 2^{k-1}

    with Z the registers not filled (Ertl 2017, "New cardinality estimation algorithms for
    HyperLogLog sketches", Algorithm 6; ranks beyond the last do not occur here). It is the
    estimate of Flajolet et al. 2007, relative error 1.04 / √m, without its bias where few nodes
    were seen.

    sums: Σ 2^(TOP - M_j) over the filled ones, and Z.  int64 [2, n] -> float64 [n]

    >>> distinct_count(torch.tensor([[0, 1 << 39], [8, 7]]), 8).tolist()  # nobody; one node
    [0.0, 1.0639...]
    """
    weights = _sigma(registers)[sums[1]] * registers + sums[0].double() / 2.0**TOP
    return registers**2 / (2 * math.log(2)) / weights


def _sigma(registers: int) -> Tensor:
    """Return σ(Z / m) for Z = 0 .. m.  float64 [m + 1]"""
    power = torch.arange(registers + 1, dtype=torch.float64) / registers
    total, factor = power.clone(), 1.0
    for _ in range(64):
        power = power.square()
        total += power * factor
        factor *= 2
    total[-1] = torch.inf
    return total
