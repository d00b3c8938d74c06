"""Heads: classifiers that learn from embeddings, one delta at a time."""

from evergraph.online.heads.analytic import AnalyticHead
from evergraph.online.heads.base import OnlineHead, Scorer, heads
from evergraph.online.heads.fused import FusedHead
from evergraph.online.heads.target import TargetHead

__all__ = ["AnalyticHead", "FusedHead", "OnlineHead", "Scorer", "TargetHead", "heads"]
