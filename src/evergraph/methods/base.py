"""Where methods are found by name."""

from __future__ import annotations

from evergraph.core.resolver import Resolver
from evergraph.methods.backbone_learner import BackboneLearner

methods = Resolver[BackboneLearner]("method")
