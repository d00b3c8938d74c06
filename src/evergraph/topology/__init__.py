"""f_topo: from a graph to one vector per node, with nothing to train."""

from evergraph.topology.appnp import APPNP
from evergraph.topology.base import TopologyEncoder, topologies
from evergraph.topology.cached import EmbeddingCache
from evergraph.topology.h2gcn import H2GCN
from evergraph.topology.identity import Identity
from evergraph.topology.mixhop import MixHop
from evergraph.topology.ppr import PPR
from evergraph.topology.reservoir import Reservoir
from evergraph.topology.s2gc import S2GC
from evergraph.topology.sgc import SGC
from evergraph.topology.stepwise import Stepwise

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
