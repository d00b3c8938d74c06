"""Graphs that are drawn: with knobs, or in the likeness of published ones."""
