"""Ways to compute one product of the adjacency with features, and which of them to take."""

from evergraph.graphs.kernels.choice import (
    KERNELS,
    Kernel,
    choose_kernel,
    numba_works,
    triton_works,
)
from evergraph.graphs.kernels.room import room

__all__ = ["KERNELS", "Kernel", "choose_kernel", "numba_works", "room", "triton_works"]
