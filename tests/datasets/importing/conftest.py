"""An import in many small steps."""

import pytest

from evergraph.datasets.importing import edge_table, importing


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 64 bytes at a time and sort a few nodes at a time."""
    monkeypatch.setattr(importing, "_LARGEST_PIECE", 64)
    monkeypatch.setattr(edge_table, "_PART_NODES", 8)
