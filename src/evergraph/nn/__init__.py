"""Backbones, the heads and layers they are made of, and losses."""

from evergraph.nn.backbone import Backbone, Recipe, backbones
from evergraph.nn.feature_graph import FeatureGraph
from evergraph.nn.gcn import GAT, GCN, GIN, GraphSAGE
from evergraph.nn.losses import masked_cross_entropy, term_weights
from evergraph.nn.modulated import Modulated
from evergraph.nn.pdgnn import MLP, PDGNN, SimpleConvolution, check_head
from evergraph.nn.prototype_network import PrototypeNetwork
from evergraph.nn.random_features import LinearHead, RandomFeatures, UntrainedGCN
from evergraph.nn.residual import Residual, Tuned

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "MLP",
    "PDGNN",
    "Backbone",
    "FeatureGraph",
    "GraphSAGE",
    "LinearHead",
    "Modulated",
    "PrototypeNetwork",
    "RandomFeatures",
    "Recipe",
    "Residual",
    "SimpleConvolution",
    "Tuned",
    "UntrainedGCN",
    "backbones",
    "check_head",
    "masked_cross_entropy",
    "term_weights",
]
