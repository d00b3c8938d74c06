"""Finding finished runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evergraph.core.errors import ResultsError
from evergraph.experiments.spread import measured

RESULT, PROGRESS, SEARCH = "result.json", "progress.json", "search"
NEEDED = (
    "average_accuracy", "average_forgetting", "average_accuracy_curve", "accuracy_matrix",
    "coverage_ratio", "memory", "seconds", "config", "versions",
)  # fmt: skip
USUAL = {"by": "class", "edges": "within"}  # not told; results of the first version have neither


@dataclass(frozen=True)
class Finished:
    """A finished run: where it lies and what its ``result.json`` says."""

    folder: Path
    result: dict[str, Any]

    @property
    def method(self) -> str:
        """The method's name, or the label a benchmark gave it: its folder's name there."""
        config = self.result["config"]
        labelled = self.folder.parent.name == config["stream"]["setting"]
        return self.folder.name if labelled else str(config["method"]["name"])

    @property
    def dataset(self) -> str:
        """The dataset's name, without folder and ending if it is a file."""
        return Path(self.result["config"]["dataset"]["name"]).stem

    @property
    def setting(self) -> str:
        """``class-il`` or ``task-il``, and how the stream is cut where it is not as usual."""
        stream = self.result["config"]["stream"]
        by, edges = stream.get("by", USUAL["by"]), stream.get("edges", USUAL["edges"])
        told = [str(stream["setting"])]
        if by != USUAL["by"]:
            told.append("blurred" if by == "blurred" else f"by {by}")
        if edges != USUAL["edges"]:
            told.append(f"{edges} edges")
        return ", ".join(told)

    @property
    def keeps_everything(self) -> bool:
        """Whether the method is given all earlier tasks again, as ``joint`` is."""
        told = self.result.get("cumulative")  # unknown to earlier versions
        return _cumulative(self.result["config"]["method"]["name"]) if told is None else bool(told)

    @property
    def task(self) -> str:
        """The dataset and the setting."""
        return f"{self.dataset}, {self.setting}"


@cache
def _cumulative(method: str) -> bool:
    from evergraph.methods import methods  # loads torch: for results of earlier versions only

    return method in methods.names() and methods.resolve(method).cumulative


def collect(folder: Path) -> list[Finished]:
    """Return every finished run in a folder and below, by time of completion.

    Runs that only tried hyper-parameters out, below a folder ``search``, are left out.
    """
    if not folder.exists():
        raise ResultsError(f"no such results folder: {folder}")
    if not folder.is_dir():
        raise ResultsError(f"{folder} is a file, not a results folder")
    found = [p for p in folder.rglob(RESULT) if SEARCH not in p.relative_to(folder).parts]
    paths = sorted(found, key=lambda path: path.stat().st_mtime)
    if not paths:
        begun = len(list(folder.rglob(PROGRESS)))
        hint = f" ({begun} begun: --resume goes on with them)" if begun else ""
        raise ResultsError(
            f"{folder} holds no finished run{hint}: expected a {RESULT} in it or below"
        )
    return [Finished(path.parent, _read(path)) for path in paths]


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} is not a result of evergraph: {error}") from None
    missing = [key for key in NEEDED if not isinstance(content, dict) or key not in content]
    if missing:
        raise ResultsError(f"{path} is not a result of evergraph: it has no {missing[0]!r}")
    try:
        _look_through(content)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ResultsError(f"{path} is not a result of evergraph: {what}") from None
    return measured(content)


def _look_through(result: dict[str, Any]) -> None:
    """Raise anything at all where a result is not of the shape that reports rely on."""
    for way in ("local", "global"):
        for metric in ("average_accuracy", "average_forgetting"):
            spread = result[metric][way]["balanced"]
            float(spread["mean"]), float(spread["std"] or 0)
        sum(result["average_accuracy_curve"][way]["balanced"])
        tasks = len(result["average_accuracy_curve"][way]["balanced"])
        for seed in result["accuracy_matrix"]:
            rows = seed[way]["balanced"]
            if [len(row) for row in rows] != list(range(1, tasks + 1)):
                raise ValueError(f"accuracy_matrix must have a row for each of {tasks} tasks")
    if not result["accuracy_matrix"]:
        raise ValueError("accuracy_matrix must have an entry for each seed")
    for phase in ("embed", "train", "evaluate", "total"):
        float(result["seconds"][phase])
    float(result["memory"]["bytes"])
    for part, key in (("dataset", "name"), ("method", "name"), ("stream", "setting")):
        str(result["config"][part][key])
    dict(result["versions"])
