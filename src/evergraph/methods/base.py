"""The registry of methods."""

from __future__ import annotations

from evergraph.core.resolver import Resolver
from evergraph.methods.backbone_learner import BackboneLearner

methods = Resolver[BackboneLearner]("method")
