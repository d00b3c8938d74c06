"""f_topo: maps a graph to one vector per node, without trained parameters."""

from evergraph.topology.base import Stepwise, TopologyEncoder, topologies
from evergraph.topology.cached import EmbeddingCache
from evergraph.topology.mixhop import H2GCN, MixHop
from evergraph.topology.sgc import APPNP, PPR, S2GC, SGC, Identity, Reservoir

__all__ = [
    "APPNP",
    "H2GCN",
    "PPR",
    "S2GC",
    "SGC",
    "EmbeddingCache",
    "Identity",
    "MixHop",
    "Reservoir",
    "Stepwise",
    "TopologyEncoder",
    "topologies",
]
