"""Finished runs: collected, grouped with those they can be compared with, and as text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.core.errors import ResultsError
from evergraph.evaluation.evaluator import main_key
from evergraph.experiments.store import PROGRESS, RESULT, SEARCH, read_result
from evergraph.streams.task import TESTINGS

ALL = "all data"  # kept by a run that receives every earlier task again


@dataclass(frozen=True)
class Finished:
    """A finished run: its folder and the content of its ``result.json``."""

    folder: Path
    result: dict[str, Any]

    @property
    def method(self) -> str:
        """The method's name, or the label given by a benchmark: the name of its folder."""
        return self.folder.name if self.labelled else str(self.result["config"]["method"]["name"])

    @property
    def labelled(self) -> bool:
        """Whether it is in a benchmark's folder ``DATASET/SETTING/METHOD``, named by labels."""
        return self.folder.parent.name == str(self.result["config"]["stream"]["setting"])

    @property
    def dataset(self) -> str:
        """The dataset's name, without folder and suffix if it is a file.

        If it has parameters, the label given by a benchmark, since several may share a name.
        """
        config = self.result["config"]["dataset"]
        if self.labelled and len(config) > 1 and self.folder.parent.parent.name:
            return self.folder.parent.parent.name
        return Path(config["name"]).stem

    @property
    def setting(self) -> str:
        """``class-il`` or ``task-il``, with the options of the stream that are not the default."""
        stream = {"by": "class", "edges": "within"} | self.result["config"]["stream"]
        by = stream["by"]
        parts = [str(stream["setting"])]
        if by != "class":
            parts.append(f"by {by}" if by in ("time", "random") else by)
        if stream["edges"] != "within":
            parts.append(f"{stream['edges']} edges")
        if self.protocol is not None:
            parts.append(f"protocol {self.protocol}")
        return ", ".join(parts)

    @property
    def protocol(self) -> str | None:
        """The paper whose rules it follows; None if there is none."""
        protocol: str | None = self.result["protocol"]
        return protocol

    @property
    def headline(self) -> tuple[str, str]:
        """The way of testing and of averaging of the main number."""
        return way_of(self.result)

    @property
    def metric(self) -> str:
        """The metric of predictions, such as ``accuracy``."""
        return str(self.result["metric"]["name"])

    def main(self, part: str, testing: str) -> Any:
        """Return the main metric of a part of the result, such as its averages."""
        return self.result[part][testing][main_key(self.result)]

    @property
    def step(self) -> str:
        """What precedes a test: a ``task``, or a ``batch`` of one."""
        return "batch" if "steps" in self.result.get("dataset", {}) else "task"

    @property
    def tested_after(self) -> list[int]:
        """The number of tasks learned before each test, or of steps if tasks come in batches."""
        return list(self.result["tested_after"])

    @property
    def keeps_everything(self) -> bool:
        """Whether the method receives all earlier tasks again, like ``joint``."""
        return bool(self.result["cumulative"])


def way_of(
    result: Mapping[str, Any], testing: str | None = None, averaging: str | None = None
) -> tuple[str, str]:
    """Return how a stored result is read: as given, else as its protocol reports.

    >>> result = {"headline": None, "metric": {"name": "accuracy", "key": "balanced"}}
    >>> way_of(result), way_of(result, "global", "plain")
    (('local', 'balanced'), ('global', 'plain'))
    """
    headline = result["headline"] or {}
    return (
        testing or headline.get("testing", TESTINGS[0]),
        averaging or headline.get("averaging") or main_key(result),
    )


def collect(folder: Path) -> list[Finished]:
    """Return every finished run in a folder and below, by time of completion.

    Trial runs of a hyper-parameter search, below a folder ``search``, are left out.
    """
    if not folder.exists():
        raise ResultsError(f"no such results folder: {folder}")
    if not folder.is_dir():
        raise ResultsError(f"{folder} is a file, not a results folder")
    paths = [p for p in folder.rglob(RESULT) if SEARCH not in p.relative_to(folder).parts]
    paths.sort(key=lambda path: path.stat().st_mtime)
    if not paths:
        unfinished = len(list(folder.rglob(PROGRESS)))
        hint = f" ({unfinished} unfinished: --resume continues them)" if unfinished else ""
        raise ResultsError(
            f"{folder} holds no finished run{hint}: expected a {RESULT} in it or below"
        )
    return [Finished(path.parent, read_result(path)) for path in paths]


@dataclass(frozen=True)
class Entry:
    """A run with its unique name in the group, and ``slug``, that name in files and addresses."""

    name: str
    slug: str
    run: Finished

    def accuracy(self, testing: str) -> float:
        """Return AA after the last task in percent, class-balanced or in the targets' metric."""
        return 100 * float(self.run.main("average_accuracy", testing)["mean"])


@dataclass(frozen=True)
class Group:
    """The runs of one dataset in one setting, the best local AA first."""

    dataset: str
    setting: str  # with options of the stream that are not the default, see ``Finished``
    slug: str
    entries: tuple[Entry, ...]

    @property
    def metric(self) -> str:
        """The metric of its runs, such as ``accuracy``."""
        return metric_of(entry.run for entry in self.entries)

    @property
    def title(self) -> str:
        """The dataset and the setting as text."""
        return f"{self.dataset}, {self.setting}"


def metric_of(runs: Iterable[Finished]) -> str:
    """Return the metric of runs; several names if they differ."""
    return " or ".join(sorted({run.metric for run in runs})) or "accuracy"


def runs_of(groups: Sequence[Group]) -> list[Finished]:
    """Return the runs of all groups, in order."""
    return [entry.run for group in groups for entry in group.entries]


def groups_of_one(runs: Sequence[Finished]) -> list[Group]:
    """Return each run as a group of its own, for tables outside a report.

    Runs of one method on one dataset and setting are distinguished by their folders.
    """
    names = _names(runs, lambda run: run.folder.as_posix())
    pairs = zip(runs, names, strict=True)
    return [Group(run.dataset, run.setting, "", (Entry(name, "", run),)) for run, name in pairs]


def _names(runs: Sequence[Finished], path_of: Callable[[Finished], str]) -> list[str]:
    # With the path of each, if a method ran more than once on a dataset and setting.
    keys = [(run.method, run.dataset, run.setting) for run in runs]
    return [
        run.method if keys.count(key) == 1 else f"{run.method} ({path_of(run)})"
        for run, key in zip(runs, keys, strict=True)
    ]


def grouped(runs: Sequence[Finished], folder: Path) -> tuple[Group, ...]:
    """Return the groups by dataset and setting; the order of ``runs`` does not matter.

    ``folder`` is where they were collected: runs of one method are distinguished by their paths.
    """

    def relative_path(run: Finished) -> str:
        return Path(os.path.relpath(run.folder, folder)).as_posix()

    members: dict[tuple[str, str], list[Finished]] = {}
    for run in sorted(runs, key=relative_path):
        members.setdefault((run.dataset, run.setting), []).append(run)
    keys = sorted(members)
    slugs = slugs_of(f"{dataset}-{setting}" for dataset, setting in keys)
    groups = []
    for key, slug in zip(keys, slugs, strict=True):
        names = _names(members[key], relative_path)
        entries = map(Entry, names, slugs_of(names), members[key])
        best_first = sorted(entries, key=lambda entry: -entry.accuracy("local"))
        groups.append(Group(*key, slug, tuple(best_first)))
    return tuple(groups)


def slugs_of(names: Iterable[str]) -> list[str]:
    """Return unique names for files and addresses.

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


def percent(spread: Mapping[str, Any] | None, *, scale: float = 100.0) -> str:
    """Return a mean in percent, with its deviation if there are several seeds; ``-`` for None.

    scale: 1 if it is in percent already.
    """
    if spread is None:
        return "-"
    mean = f"{scale * spread['mean']:.1f}"
    return mean if spread["std"] is None else f"{mean} ± {scale * spread['std']:.1f}"


def p_text(p_value: float) -> str:
    """Return a p-value as text.

    >>> p_text(0.0004), p_text(0.0213), p_text(1.0)
    ('p < 0.001', 'p = 0.021', 'p = 1.000')
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def seeds_of(run: Finished) -> int:
    """Return the number of repeats of a run."""
    return len(run.result["accuracy_matrix"])


def seconds_a_seed(run: Finished, phase: str) -> float:
    """Return the seconds of a phase, or in total, per repeat: the mean over seeds."""
    return float(run.result["seconds"][phase]) / seeds_of(run)


def deviations(runs: Iterable[Finished]) -> str:
    """Return the caption's words on deviations, if any run has several seeds."""
    several = any(seeds_of(run) > 1 for run in runs)
    return ", mean ± standard deviation over seeds" if several else ""


def size(count: int) -> str:
    """Return a number of bytes as text.

    >>> size(0), size(1500), size(18_400_000)
    ('-', '1.5 kB', '18.4 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B" if count else "-"


def count_of(count: int) -> str:
    """Return a number of values in the notation of the paper.

    >>> count_of(0), count_of(950), count_of(61_000_000)
    ('-', '950', '61.0M')
    """
    return size(count).replace(" ", "").replace("B", "")
