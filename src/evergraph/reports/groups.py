"""Runs that may be compared: of one dataset in one setting and kind of stream, each named."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evergraph.reports.collect import Finished


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
        """Return AA after the last task, class-balanced and in percent."""
        return 100 * float(self.run.result["average_accuracy"][testing]["balanced"]["mean"])


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
    def title(self) -> str:
        """The dataset and the setting, for people."""
        return f"{self.dataset}, {self.setting}"


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
