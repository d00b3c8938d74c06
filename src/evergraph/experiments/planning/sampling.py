"""What it takes to choose what is stored: the reach of every training node of a task."""

from __future__ import annotations

import math

from evergraph.experiments.planning.tasks import Cut
from evergraph.graphs.reach.cost import REGISTER_SECONDS, WALK_SECONDS, ReachCost
from evergraph.graphs.reach.hyperloglog import REGISTERS

MEASURED_CORES = 2  # on which the seconds of ``ReachCost`` were
# Deviation of the logarithm of degrees, as on Products: a neighbour has exp(σ²) times the mean.
SPREAD = 1.3


def sampling_seconds(cut: Cut, *, hops: int, cores: int) -> float:
    """Return the seconds that ``CoverageSampler`` takes, exact or estimated as it chooses.

    A search from a node reads 1 + d + d · d exp(σ²) + ... entries, d the mean degree, and none
    twice; an estimate passes all registers along every entry at each hop.

    >>> few = Cut(nodes=1_000, looked_at=9_000, entries=9_000, classified=1_000)
    >>> round(sampling_seconds(few, hops=1, cores=2) * 1e6, 2)  # 600 x (1 + 9) walks
    15.0
    """
    degree = cut.entries / max(cut.nodes, 1)
    walks = [1.0, *(degree * (degree * math.exp(SPREAD**2)) ** hop for hop in range(hops))]
    each = min(sum(walks), cut.entries + cut.nodes)
    work = float(cut.entries + cut.nodes) * REGISTERS * hops
    cost = ReachCost(cut.training * each * WALK_SECONDS, work * REGISTER_SECONDS)
    chosen = cost.exact if cost.cheaper == "exact" else cost.estimated
    return chosen * MEASURED_CORES / cores
