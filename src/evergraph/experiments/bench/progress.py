"""How far one repeat is, told from outside the process that learns it.

The results folder says it: nothing has to be sent, a killed process garbles nothing, and a repeat
on another machine is followed the same way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.evaluation import average_accuracy, average_forgetting
from evergraph.evaluation.accuracy_matrix import matrix_of
from evergraph.experiments.store import PROGRESS, ResultStore


@dataclass(frozen=True)
class Progress:
    """What a repeat has come to so far.

    Attributes:
        done: how many tasks are learned, or steps where tasks arrive in batches.
        tasks: of how many.
        finished: whether the repeat's result is there.
        accuracy, forgetting: AA and AF so far, local and class-balanced.
        seconds: spent so far.
    """

    done: int
    tasks: int
    finished: bool
    accuracy: float
    forgetting: float
    seconds: float


def progress_path(folder: Path, seed: int) -> Path:
    """Return the file that tells how far a repeat is."""
    return ResultStore(folder).seed(seed).folder / PROGRESS


def read_progress(folder: Path, seed: int) -> Progress | None:
    """Return how far a repeat is; None where nothing is known, or what is there is damaged."""
    try:
        stored: dict[str, Any] = json.loads(progress_path(folder, seed).read_text("utf-8"))
        return _progress(stored)
    except (OSError, ValueError, KeyError, IndexError):
        return None  # whoever goes on with the repeat will say what is wrong with it


def _progress(stored: dict[str, Any]) -> Progress:
    reports = stored["reports"]
    # The main measure stands first.
    matrix = matrix_of([next(iter(report["rows"]["local"].values())) for report in reports])
    return Progress(
        done=reports[-1]["index"] + 1,
        tasks=stored.get("tasks", len(reports)),
        finished=stored["result"] is not None,
        accuracy=average_accuracy(matrix),
        forgetting=average_forgetting(matrix),
        seconds=sum(sum(report["seconds"].values()) for report in reports),
    )
