"""Ways to compute one product of the adjacency with features, and which of them to take."""
