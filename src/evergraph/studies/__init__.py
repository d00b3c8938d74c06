"""The studies: the paper's tables and figures, and further ones."""

from evergraph.studies import comparison, datasets, fig6, protocols, table2, theorem  # register
from evergraph.studies.base import Options, Sheet, studies

FILES = (comparison, datasets, fig6, protocols, table2, theorem)
__all__ = ["FILES", "Options", "Sheet", "studies"]
