"""Finished runs: found, and put side by side with those they may be compared with."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from evergraph.core.errors import ResultsError, UnknownNameError
from evergraph.evaluation.yardstick import main_key, main_name, measured, spread

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
        return self.folder.name if self.labelled else str(self.result["config"]["method"]["name"])

    @property
    def labelled(self) -> bool:
        """Whether it lies where a benchmark puts it: in ``DATASET/SETTING/METHOD``, by labels."""
        return self.folder.parent.name == str(self.result["config"]["stream"]["setting"])

    @property
    def dataset(self) -> str:
        """The dataset's name, without folder and ending if it is a file.

        Where it has parameters, the label that a benchmark gave it: several have one name then.
        """
        config = self.result["config"]["dataset"]
        if self.labelled and len(config) > 1 and self.folder.parent.parent.name:
            return self.folder.parent.parent.name
        return Path(config["name"]).stem

    @property
    def setting(self) -> str:
        """``class-il`` or ``task-il``, and how the stream is cut where it is not as usual."""
        stream = self.result["config"]["stream"]
        by, edges = stream.get("by", USUAL["by"]), stream.get("edges", USUAL["edges"])
        told = [str(stream["setting"])]
        if by != USUAL["by"]:
            told.append(f"by {by}" if by in ("time", "random") else by)
        if edges != USUAL["edges"]:
            told.append(f"{edges} edges")
        if self.protocol is not None:
            told.append(f"protocol {self.protocol}")
        return ", ".join(told)

    @property
    def protocol(self) -> str | None:
        """The paper whose rules it follows; None for none, as in results of earlier versions."""
        return self.result.get("protocol")

    @property
    def headline(self) -> tuple[str, str]:
        """The way of testing and of averaging whose number stands first."""
        told = self.result.get("headline", {})
        return told.get("testing", "local"), told.get("averaging", main_key(self.result))

    @property
    def metric(self) -> str:
        """What answers were measured by, such as ``accuracy``."""
        return main_name(self.result)

    def main(self, what: str, testing: str) -> Any:
        """Return the main measure of something that a result tells, such as its averages."""
        return self.result[what][testing][main_key(self.result)]

    def anytime(self, testing: str) -> dict[str, Any]:
        """Return the mean of AA over all tests, from the rows where an early result has no such."""
        for name in ("anytime_accuracy", "area_under_curve"):
            if name in self.result:
                found: dict[str, Any] = self.main(name, testing)
                return found
        matrices = [s[testing][main_key(self.result)] for s in self.result["accuracy_matrix"]]
        return spread([fmean(map(fmean, rows)) for rows in matrices])

    @property
    def step(self) -> str:
        """What a test comes after: a ``task``, or a ``batch`` of one."""
        return "batch" if "steps" in self.result.get("dataset", {}) else "task"

    @property
    def tested_after(self) -> list[int]:
        """How many tasks, or steps where tasks arrive in batches, were learned before each test."""
        tests = len(self.main("average_accuracy_curve", "local"))
        return list(self.result.get("tested_after", range(1, tests + 1)))

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
            found = result[metric][way][main_key(result)]
            float(found["mean"]), float(found["std"] or 0)
        sum(result["average_accuracy_curve"][way][main_key(result)])
        tests = len(result["average_accuracy_curve"][way][main_key(result)])
        _check_rows([seed[way][main_key(result)] for seed in result["accuracy_matrix"]], tests)
    if not result["accuracy_matrix"]:
        raise ValueError("accuracy_matrix must have an entry for each seed")
    for phase in ("embed", "train", "evaluate", "total"):
        float(result["seconds"][phase])
    float(result["memory"]["bytes"])
    for part, key in (("dataset", "name"), ("method", "name"), ("stream", "setting")):
        str(result["config"][part][key])
    dict(result["versions"])


def _check_rows(matrices: Sequence[Sequence[Sequence[float]]], tests: int) -> None:
    """Raise unless all seeds were tested alike: every time on all tasks of the time before."""
    every = [[len(row) for row in rows] for rows in matrices]
    for widths in every:
        if len(widths) != tests or not widths[0] or widths != sorted(every[0]):
            raise ValueError(
                f"accuracy_matrix must have a row for each of {tests} tests, none shorter than the "
                "one before, and as long for every seed"
            )


@dataclass(frozen=True)
class Entry:
    """A run in the report.

    Attributes:
        name: what it is called there, unlike any other of its group.
        slug: the same as part of a file's name or of an address.
        run: the run itself.
    """

    name: str
    slug: str
    run: Finished

    def accuracy(self, testing: str) -> float:
        """Return AA after the last task, class-balanced or of what targets have, in percent."""
        return 100 * float(self.run.main("average_accuracy", testing)["mean"])


@dataclass(frozen=True)
class Group:
    """The runs of one dataset in one setting, the best local AA first.

    ``setting`` also tells how the stream is cut where it is not as usual, see ``Finished``.
    """

    dataset: str
    setting: str
    slug: str
    entries: tuple[Entry, ...]

    @property
    def metric(self) -> str:
        """What its runs were measured by, such as ``accuracy``."""
        return metric_of(entry.run for entry in self.entries)

    @property
    def title(self) -> str:
        """The dataset and the setting, for people."""
        return f"{self.dataset}, {self.setting}"


def metric_of(runs: Iterable[Finished]) -> str:
    """Return what runs were measured by; several names where they differ."""
    return " or ".join(sorted({run.metric for run in runs})) or "accuracy"


def grouped(runs: Sequence[Finished], folder: Path) -> tuple[Group, ...]:
    """Return the groups by dataset and setting; the order of ``runs`` does not matter.

    ``folder`` is where they were collected: runs of one method are told apart by their place in it.
    """
    keys = sorted({(run.dataset, run.setting) for run in runs})
    slugs = slugs_of(f"{dataset}-{setting}" for dataset, setting in keys)
    groups = []
    for (dataset, setting), slug in zip(keys, slugs, strict=True):
        members = [run for run in runs if (run.dataset, run.setting) == (dataset, setting)]
        groups.append(Group(dataset, setting, slug, _entries(members, folder)))
    return tuple(groups)


def _entries(runs: Sequence[Finished], folder: Path) -> tuple[Entry, ...]:
    placed = sorted(
        ((Path(os.path.relpath(run.folder, folder)).as_posix(), run) for run in runs),
        key=lambda pair: pair[0],
    )
    times = Counter(run.method for run in runs)
    names = [
        run.method if times[run.method] == 1 else f"{run.method} ({place})" for place, run in placed
    ]
    found = [
        Entry(name, slug, run)
        for name, slug, (_, run) in zip(names, slugs_of(names), placed, strict=True)
    ]
    return tuple(sorted(found, key=lambda entry: -entry.accuracy("local")))


def slugs_of(names: Iterable[str]) -> list[str]:
    """Return names fit for files and addresses, no two alike.

    >>> slugs_of(["er-gnn", "A & B", "a b", "???"])
    ['er-gnn', 'a-b', 'a-b-2', 'run']
    """
    slugs: list[str] = []
    for name in names:
        plain = re.sub(r"[^a-z0-9_.]+", "-", name.lower()).strip("-.") or "run"
        slug, tries = plain, 1
        while slug in slugs:
            tries += 1
            slug = f"{plain}-{tries}"
        slugs.append(slug)
    return slugs


def names_of(groups: Sequence[Group]) -> list[str]:
    """Return every name once, so that a method looks the same in all figures."""
    return sorted({entry.name for group in groups for entry in group.entries})


def check_reference(groups: Sequence[Group], against: str | None) -> None:
    """Raise if no run has the name of the one to compare with."""
    if against is not None and against not in names_of(groups):
        raise UnknownNameError("run to compare with", against, names_of(groups))
