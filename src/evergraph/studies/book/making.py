"""From a finished run, or one that failed, to its row."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.evaluation.accuracy_matrix import average_accuracy_curve, matrix_of
from evergraph.experiments.bench.jobs import Job
from evergraph.experiments.build import resolved
from evergraph.experiments.config import RunConfig
from evergraph.experiments.facts import machine, versions
from evergraph.experiments.store import RESULT
from evergraph.studies.book.command_line import command_of, without_place
from evergraph.studies.book.row import BookRow

COMMIT = "EVERGRAPH_COMMIT"
DIGITS = 5  # of an accuracy, a fraction


def row_of(
    result: Mapping[str, Any], folder: Path, *, dataset: str, label: str, commit: str
) -> BookRow:
    """Return the row of a finished run.

    Args:
        result: what its ``result.json`` says.
        folder: where that lies: its age is the row's.
        dataset, label: what the book calls the graph and the method.
        commit: of the code that ran it.
    """
    config = placeless(RunConfig.of(result["config"]))
    tasks = _tasks(result["accuracy_matrix"])
    made = (folder / RESULT).stat().st_mtime
    return BookRow(
        dataset=dataset,
        setting=config.stream.setting,
        label=label,
        method=config.method.name,
        protocol=getattr(config, "protocol", None),
        config=_told(config),
        command=command_of(config),
        commit=commit,
        versions=dict(result["versions"]),
        machine=in_words(result["machine"]),
        date=datetime.fromtimestamp(made, timezone.utc).strftime("%Y-%m-%d"),
        seeds=tuple(seed["seed"] for seed in result["accuracy_matrix"]),
        values={
            t: {a: metrics_of(seeds) for a, seeds in ways.items()} for t, ways in tasks.items()
        },
        tasks=tasks,
        facts={k: v for k, v in result["dataset"].items() if k != "task_classes"},
        seconds={phase: round(spent, 3) for phase, spent in result["seconds"].items()},
        bytes=result["memory"]["bytes"],
        cumulative=bool(result.get("cumulative", False)),
        peak_bytes=result["peak_rss_bytes"],
    )


def failed_row(job: Job, failure: str, *, commit: str) -> BookRow:
    """Return the row of a run that came to no result, which says why."""
    config = placeless(resolved(job.config))
    return BookRow(
        dataset=job.dataset,
        setting=job.setting,
        label=job.label,
        method=config.method.name,
        protocol=getattr(config, "protocol", None),
        config=_told(config),
        command=command_of(config),
        commit=commit,
        versions=versions(),
        machine=in_words(machine(config.device)),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        seeds=config.seeds,
        failure=failure,
    )


def placeless(config: RunConfig) -> RunConfig:
    """Return a configuration in which a graph's file is called by its name, wherever it lies."""
    path = Path(config.dataset.name)
    if len(path.parts) < 2:
        return config
    return config.model_copy(
        update={"dataset": config.dataset.model_copy(update={"name": path.name})}
    )


def _told(config: RunConfig) -> dict[str, Any]:
    # Not in ``placeless``: a configuration without their places could not load its plugins.
    return config.to_dict() | {"plugins": [without_place(each) for each in config.plugins]}


def in_words(machine: Mapping[str, Any]) -> str:
    """Return what a machine is, in words.

    >>> in_words({"cpus": 16, "memory": "128 GiB", "gpu": "NVIDIA H200"})
    'NVIDIA H200, 16 CPUs, 128 GiB'
    """
    cpus = f"{machine['cpus']} CPUs"
    return ", ".join(filter(None, (machine.get("gpu"), cpus, machine.get("memory"))))


def commit_here(given: str | None = None) -> str:
    """Return the commit of this code: as given, by ``$EVERGRAPH_COMMIT``, or as git says."""
    said = given or os.environ.get(COMMIT) or _git("rev-parse", "--short=12", "HEAD")
    return said or "unknown"


def _git(*words: str) -> str:
    folder = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):  # no git here, or no repository
        return ""
    return found.stdout.strip()


def _tasks(matrices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is kept of each seed's matrix, by testing and averaging."""
    ways = {key: value for key, value in matrices[0].items() if key != "seed"}
    return {
        testing: {average: [_kept(seed[testing][average]) for seed in matrices] for average in rows}
        for testing, rows in ways.items()
    }


def _kept(rows: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """Return the mean of each row, the diagonal and the last row.

    >>> _kept([[0.9], [0.5, 0.7]])
    {'curve': [0.9, 0.6], 'learned': [0.9, 0.7], 'final': [0.5, 0.7]}
    """
    matrix = matrix_of(rows)
    kept = {
        "curve": average_accuracy_curve(matrix), "learned": matrix.diagonal(), "final": matrix[-1]
    }  # fmt: skip
    return {name: np.round(values, DIGITS).tolist() for name, values in kept.items()}


def metrics_of(seeds: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """Return the metrics of each seed, from what is kept of its matrix.

    >>> metrics_of([{"curve": [0.9, 0.6], "learned": [0.9, 0.7], "final": [0.5, 0.7]}])
    {'average_accuracy': [0.6], 'average_forgetting': [-0.4], 'anytime_accuracy': [0.75]}
    """
    return {
        "average_accuracy": [round(float(np.mean(seed["final"])), DIGITS) for seed in seeds],
        "average_forgetting": [_forgotten(seed) for seed in seeds],
        "anytime_accuracy": [round(float(np.mean(seed["curve"])), DIGITS) for seed in seeds],
    }


def _forgotten(seed: Mapping[str, list[float]]) -> float:
    lost = np.subtract(seed["final"], seed["learned"])[:-1]
    return round(float(lost.mean()), DIGITS) if len(lost) else 0.0
