"""Live learner on a growing graph: deltas in, predictions at any time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evergraph.online.delta import Delta, Label, NodeId

if TYPE_CHECKING:
    from evergraph.online.classifier import ContinualNodeClassifier
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.learner import OnlineLearner

# Imported on first use, so that a journal can be read without loading torch's heads and methods.
_MODULE_OF = {
    "ContinualNodeClassifier": "classifier",
    "LearnerFolder": "folder.learner_folder",
    "OnlineLearner": "learner",
}

__all__ = ["ContinualNodeClassifier", "Delta", "Label", "LearnerFolder", "NodeId", "OnlineLearner"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
