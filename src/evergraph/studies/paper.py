"""What the paper says, to stand beside what we find."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.experiments.config import read_toml
from evergraph.experiments.presets import presets, published

# Files of the structure alone go by these names.
_STEMS = {"cora_full": "corafull", "arxiv": "arxiv", "reddit": "reddit", "products": "products"}


@cache
def facts() -> dict[str, Any]:
    """Return Tables 1 and 4 and the homophily ratios.

    >>> facts()["datasets"]["arxiv"]["homophily"]
    0.655
    """
    return read_toml(Path(str(resources.files("evergraph.studies"))) / "paper_facts.toml")


def papers_name(dataset: str) -> str | None:
    """Return which of the paper's four datasets a name or path stands for, None if none.

    >>> papers_name("data/ogbn_arxiv_structure.npz"), papers_name("wordnet")
    ('arxiv', None)
    """
    stem = Path(dataset).stem.lower().replace("-", "_")
    if stem in facts()["datasets"]:
        return stem
    return next((name for part, name in _STEMS.items() if part in stem), None)


def papers_cell(table: str, dataset: str, method: str) -> dict[str, Any]:
    """Return a cell of Table 3 or 5, empty where the paper has none."""
    name = f"paper/{table}/{papers_name(dataset)}-{method}"
    return published(name) if name in presets() else {}
