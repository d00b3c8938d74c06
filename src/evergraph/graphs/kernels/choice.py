"""Which kernel a graph's products are computed by."""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal, get_args

import torch

Kernel = Literal["torch", "numba", "triton"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)

# From so many entries on, self-loops among them, numba is chosen. Below, features lie in the
# caches and torch is as fast, less what numba takes to start. Above, numba reads ahead, and an
# embedding need not wait for Â to be written out. ``benchmarks/kernels.py`` has both sides.
NUMBA_PAYS_FROM = 1_000_000
# The same on a GPU, where a product by cuSPARSE needs Â written out and Triton a second to start.
TRITON_PAYS_FROM = 1_000_000

log = logging.getLogger(__name__)


def choose_kernel(*, entries: int, device: torch.device | str = "cpu") -> Kernel:
    """Return the faster kernel for an adjacency of so many entries, self-loops among them.

    Neither width nor rows are asked for: a block of columns or of rows must be summed by the
    kernel that sums the whole, or the last bits would depend on the size of the block.

    >>> choose_kernel(entries=1000)
    'torch'
    """
    kernel: Kernel = "torch"
    kind = torch.device(device).type
    if kind == "cpu" and entries >= NUMBA_PAYS_FROM and numba_works():
        kernel = "numba"
    if kind == "cuda" and entries >= TRITON_PAYS_FROM and triton_works():
        kernel = "triton"
    log.debug("kernel %s for %d entries on %s", kernel, entries, device)
    return kernel


def numba_works() -> bool:
    """Whether numba is there and can be imported beside this numpy."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        log.debug("numba cannot be used (%s): torch multiplies instead", error)
        return False
    return True


@cache  # to ask for a GPU takes as long as to start a kernel
def triton_works() -> bool:
    """Whether Triton is there, as it is beside torch's own builds for GPUs, and there is one."""
    if not torch.cuda.is_available():
        return False
    try:
        import triton  # noqa: F401
    except ImportError as error:
        log.debug("Triton cannot be used (%s): torch multiplies instead", error)
        return False
    return True
