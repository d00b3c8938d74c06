"""Floor 3: f_out heads and losses."""

from evergraph.nn.losses import masked_cross_entropy, term_weights
from evergraph.nn.mlp import MLP

__all__ = ["MLP", "masked_cross_entropy", "term_weights"]
