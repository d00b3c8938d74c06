"""Which kernel follows a growing graph."""

from __future__ import annotations

from evergraph.graphs.kernels.scaled_rows import Kernel, numba_works

# From so many entries on, a list of changes is followed by compiled code. Below, numpy takes about
# as long, less the second or so that numba takes to be imported.
NUMBA_FOLLOWS_FROM = 100_000


def choose(*, entries: int) -> Kernel:
    """Return the faster kernel beside so many entries of a growing adjacency.

    The width of what is summed and the size of a change are not asked for: how a row is summed
    depends on the graph alone.

    >>> choose(entries=1000)
    'torch'
    """
    return "numba" if entries >= NUMBA_FOLLOWS_FROM and numba_works() else "torch"
