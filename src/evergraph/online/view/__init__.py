"""The readers' view of a learner: predictions, explanations, suggestions, status."""

from evergraph.online.view.explanation import Explanation
from evergraph.online.view.learner_view import NODES_PER_PART, LearnerView, PublishedState
from evergraph.online.view.records import Answer, History, Status
from evergraph.online.view.suggestions import Suggestion

__all__ = [
    "NODES_PER_PART",
    "Answer",
    "Explanation",
    "History",
    "LearnerView",
    "PublishedState",
    "Status",
    "Suggestion",
]
