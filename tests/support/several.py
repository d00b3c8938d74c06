"""One process that says it is three workers."""

from evergraph.core.resources import LocalEngine


class Several(LocalEngine):
    workers = 3
