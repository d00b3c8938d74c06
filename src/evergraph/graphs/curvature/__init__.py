"""Curvature of edges, after Forman and after Ollivier."""
