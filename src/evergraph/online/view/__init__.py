"""The readers' view of a learner: predictions, explanations, suggestions, status."""

from evergraph.online.view.explanation import Explanation
from evergraph.online.view.learner_view import LearnerView
from evergraph.online.view.published import NODES_PER_PART, Answer, History, PublishedState, Status
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
