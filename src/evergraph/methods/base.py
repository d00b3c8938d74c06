"""Where methods are found by name."""

from __future__ import annotations

from evergraph.core.resolver import Resolver
from evergraph.training import Learner

methods = Resolver[Learner]("method")
