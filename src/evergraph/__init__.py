"""evergraph: node classification that keeps up with a growing graph and forgets nothing."""
