"""Codecs of deltas: bytes, tables, and lines of JSON."""
