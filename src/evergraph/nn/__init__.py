"""Floor 3: f_out heads and losses."""

from evergraph.nn.losses import masked_cross_entropy, term_weights
from evergraph.nn.mlp import MLP, check_head

__all__ = ["MLP", "check_head", "masked_cross_entropy", "term_weights"]
