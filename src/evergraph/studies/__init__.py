"""The studies: the paper's tables and figures, and further ones."""

from evergraph.studies.base import Options, Sheet, Study, studies
from evergraph.studies.comparison import Fig4, Fig5, Paper, Table3, Table5
from evergraph.studies.datasets import Homophily, Table1, Table4
from evergraph.studies.fig6 import Fig6
from evergraph.studies.protocols import Protocols
from evergraph.studies.table2 import Strategies, Table2
from evergraph.studies.theorem import Theorem

__all__ = [
    "Fig4",
    "Fig5",
    "Fig6",
    "Homophily",
    "Options",
    "Paper",
    "Protocols",
    "Sheet",
    "Strategies",
    "Study",
    "Table1",
    "Table2",
    "Table3",
    "Table4",
    "Table5",
    "Theorem",
    "studies",
]
