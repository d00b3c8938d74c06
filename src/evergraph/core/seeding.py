"""Randomness without global state: every draw comes from an explicit generator."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def seeded(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose of one seed.

    Generators for different purposes are independent, so drawing more numbers for one
    (say, the head's initial weights) never changes another (say, the split).

    >>> a, b = seeded(0, "split"), seeded(0, "head")
    >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
    False
    """
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    generator = torch.Generator()
    generator.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return generator


def exponential(count: int, *, generator: torch.Generator) -> Tensor:
    """Draw ``count`` exponential variates in float64, all above zero.  [count]"""
    draws = torch.empty(count, dtype=torch.float64, device=generator.device)
    draws.exponential_(generator=generator)
    return draws.clamp_min_(torch.finfo(torch.float64).tiny)


def splitmix64(numbers: NDArray[np.uint64], seed: int = 0) -> NDArray[np.uint64]:
    """Return pseudo-random numbers by hashing (Steele, Lea and Flood 2014)."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
