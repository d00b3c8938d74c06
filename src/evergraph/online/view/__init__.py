"""The readers' view of a learner: predictions, explanations, suggestions, status."""

from evergraph.online.view.explanation import Explanation, Voice
from evergraph.online.view.learner_view import LearnerView, Neighbourhood
from evergraph.online.view.page import (
    FEW,
    Answer,
    History,
    LabelsPrediction,
    NumberPrediction,
    Page,
    Prediction,
    Published,
    Status,
)
from evergraph.online.view.suggestions import Suggestion

__all__ = [
    "FEW",
    "Answer",
    "Explanation",
    "History",
    "LabelsPrediction",
    "LearnerView",
    "Neighbourhood",
    "NumberPrediction",
    "Page",
    "Prediction",
    "Published",
    "Status",
    "Suggestion",
    "Voice",
]
