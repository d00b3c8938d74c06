"""A growing graph, its normalised adjacency and its embeddings, updated in place."""
