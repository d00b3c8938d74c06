"""Two methods side by side: what is paired, what may be claimed, and one sentence on it."""

from evergraph.reports.comparing.comparison import Comparison, compare, compare_trials, corrected
from evergraph.reports.comparing.over_datasets import OverDatasets, over_datasets
from evergraph.reports.comparing.trials import Trials, trials_of, way_of

__all__ = [
    "Comparison",
    "OverDatasets",
    "Trials",
    "compare",
    "compare_trials",
    "corrected",
    "over_datasets",
    "trials_of",
    "way_of",
]
