"""Codecs of deltas: bytes and tables."""
