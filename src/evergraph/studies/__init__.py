"""The paper's study, one file per table or figure."""

from evergraph.studies.base import Options, Sheet, Study, studies
from evergraph.studies.comparison import Table3, Table5
from evergraph.studies.datasets import Homophily, Table1
from evergraph.studies.fig4 import Fig4
from evergraph.studies.fig5 import Fig5
from evergraph.studies.fig6 import Fig6
from evergraph.studies.paper_tables import Paper
from evergraph.studies.protocols import Protocols
from evergraph.studies.strategies import Strategies
from evergraph.studies.table2 import Table2
from evergraph.studies.table4 import Table4
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
