"""Folders of a small real learner, and its twins that never saw a disk."""

from pathlib import Path

import torch

from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from growth import bits as bits


def make() -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=8, regularisation=0.1), patience=4)


def delta(number: int) -> Delta:
    """Return delta 1, 2, ...: a node each; the fourth needs the third, others the first alone."""
    features = torch.arange(3.0).view(1, 3).add(number).reciprocal()
    edges = () if number == 1 else ((f"n{number}", "n3" if number == 4 else "n1"),)
    name, label = f"n{number}", "xy"[number % 2]
    return Delta(nodes=(name,), features=features, labels=(label,), edges=edges, key=f"k{number}")


def opened(path: Path, **options) -> LearnerFolder:
    # The first delta of a process imports much: closing would take a snapshot on a slow machine.
    return LearnerFolder.open(path, make=make, **{"close_seconds": 100.0} | options)


def filled(path: Path, number: int, *, compact_at: tuple[int, ...] = ()) -> Path:
    with opened(path) as folder:
        for each in range(1, number + 1):
            folder.submit(delta(each))
            if each in compact_at:
                folder.compact()
    return path


def twin(number: int, *, without: tuple[int, ...] = ()) -> dict[str, bytes]:
    """Return the bits of a learner that was given so many deltas; those without brought nothing."""
    learner = make()
    for each in range(1, number + 1):
        learner.apply(Delta() if each in without else delta(each))
    return bits(learner)
