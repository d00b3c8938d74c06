"""Deltas as bytes and as tables."""
