"""One process that says it is three workers."""

from __future__ import annotations

from evergraph.core.engine import LocalEngine


class Several(LocalEngine):
    workers = 3
