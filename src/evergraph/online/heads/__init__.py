"""Heads: classifiers that learn from embeddings, one delta at a time."""

from evergraph.online.heads.fused import FusedHead, heads
from evergraph.online.heads.scorer import Scorer
from evergraph.online.heads.variants import AnalyticHead, TargetHead

__all__ = ["AnalyticHead", "FusedHead", "Scorer", "TargetHead", "heads"]
