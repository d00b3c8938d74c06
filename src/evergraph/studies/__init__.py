"""The studies: the paper's tables and figures, and further ones."""

from evergraph.studies import comparison, datasets, fig6, protocols, table2, theorem  # register
from evergraph.studies.base import Options, Sheet, studies

__all__ = [
    "Options",
    "Sheet",
    "comparison",
    "datasets",
    "fig6",
    "protocols",
    "studies",
    "table2",
    "theorem",
]
