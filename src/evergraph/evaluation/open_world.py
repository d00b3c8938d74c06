"""What can be measured before the next task is learned, on the nodes that it will bring."""

from __future__ import annotations

from evergraph.core.label_space import LabelSpace
from evergraph.evaluation.accuracy import balanced_accuracy
from evergraph.evaluation.marking import Marked
from evergraph.evaluation.rejection import rejection_auroc


def rejection(seen: Marked, coming: Marked, learned: LabelSpace) -> float | None:
    """Return how well nodes of classes still to come are told from nodes of the tasks so far.

    Known nodes are read where they stand in the same graph as the unknown ones, so that a graph
    that has merely grown is not mistaken for a new class: in global testing ``coming`` holds both.
    None where the next task brings no new class.
    """
    unknown = coming.novelty[coming.labels >= learned.num_classes]
    known = coming.novelty[coming.tasks < len(learned.sizes)]
    return rejection_auroc(known if len(known) else seen.novelty, unknown) if len(unknown) else None


def forward_transfer(coming: Marked, learned: LabelSpace) -> float | None:
    """Return the balanced accuracy on nodes to come whose class is known, less that of guessing.

    FWT = accuracy - 1 / known classes (Lopez-Paz and Ranzato, NeurIPS 2017, who take an untrained
    model's accuracy for guessing). Above 0, what was learned carries over to nodes that arrive
    later. None where no known class comes again: always, where every task brings new classes only.
    """
    again = (coming.tasks >= len(learned.sizes)) & (coming.labels < learned.num_classes)
    if not bool(again.any()):
        return None
    return balanced_accuracy(coming.classes[again], coming.labels[again]) - 1 / learned.num_classes
