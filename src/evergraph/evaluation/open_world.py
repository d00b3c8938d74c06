"""What can be measured on nodes of classes that are not learned yet."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.core.label_space import LabelSpace
from evergraph.evaluation.accuracy import balanced_accuracy
from evergraph.evaluation.scoring import Scored


def rejection_auroc(known: Tensor, unknown: Tensor) -> float:
    """Return how often an unknown node looks more novel than a known one (AUROC).

    AUROC = P(s_unknown > s_known) + P(s_unknown = s_known) / 2, the rank statistic of Mann and
    Whitney: 0.5 is guessing, 1 tells them apart without fault. It asks for no threshold. NaN where
    a score is, or where one side has no nodes.

    known, unknown: novelty of nodes of learned classes and of others.  [n], [m] -> 0..1

    0.7 stands above both known scores, 0.3 above one and level with the other: (2 + 1.5) / 4.

    >>> rejection_auroc(torch.tensor([0.1, 0.3]), torch.tensor([0.7, 0.3]))
    0.875
    """
    if not (len(known) and len(unknown)) or bool(torch.cat([known, unknown]).isnan().any()):
        return float("nan")
    ranked = known.sort().values
    below = torch.searchsorted(ranked, unknown)  # known scores under each unknown one
    level = torch.searchsorted(ranked, unknown, right=True)  # and those level with it
    return float((below + level).double().mean() / (2 * len(known)))


def rejection(seen: Scored, coming: Scored, learned: LabelSpace) -> float | None:
    """Return how well nodes of classes still to come are told from nodes of the tasks so far.

    Known nodes are read where they stand in the same graph as the unknown ones, so that a graph
    that has merely grown is not mistaken for a new class: in global testing ``coming`` holds both.
    None where the next task brings no new class.
    """
    unknown = coming.novelty[coming.labels >= learned.num_classes]
    known = coming.novelty[coming.tasks < len(learned.sizes)]
    return rejection_auroc(known if len(known) else seen.novelty, unknown) if len(unknown) else None


def forward_transfer(coming: Scored, learned: LabelSpace) -> float | None:
    """Return the balanced accuracy on nodes to come whose class is known, less that of guessing.

    FWT = accuracy - 1 / known classes (Lopez-Paz and Ranzato, NeurIPS 2017, who take an untrained
    model's accuracy for guessing). Above 0, what was learned carries over to nodes that arrive
    later. None where no known class comes again: always, where every task brings new classes only.
    """
    again = (coming.tasks >= len(learned.sizes)) & (coming.labels < learned.num_classes)
    if not bool(again.any()):
        return None
    return balanced_accuracy(coming.classes[again], coming.labels[again]) - 1 / learned.num_classes
