"""A graph that grows, its normalised adjacency and its embeddings, changed in place."""
