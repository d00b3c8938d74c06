"""Kernels for the product of the adjacency with features, and the choice among them."""
