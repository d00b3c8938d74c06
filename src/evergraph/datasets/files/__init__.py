"""Graphs in files: .npz, .pt and folders of tables."""
