"""What a disk may hold after a power cut, rebuilt from the calls that a writer made.

A cut can be made after any step of a trace: what a file's ``fsync`` covered is there, names are
there once their folder was synced; of everything else any part may be there or not (``WAYS``).

Left out: ``-shm``, which SQLite writes through memory and builds anew from the WAL; the name of the
folder itself in its parent, see ``synced_parent``; and disks that lie about a flush.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

from traced_calls import ROOT, Step

SECTOR = 512
WAYS = ("nothing", "everything", "names only", "data only", "a prefix", "any part")


@dataclass(frozen=True)
class Cut:
    """The power is cut after a step, and this much is left of what was not synced."""

    after: int
    way: str
    seed: int


class PowerCuts:
    """Rebuilds what a disk may hold after a cut."""

    def __init__(self, done: list[Step]) -> None:
        self.done = done
        self._synced = self._first_syncs()

    def _first_syncs(self) -> list[int]:
        """Return for each step which one made it durable; as many as there are where none did."""
        first, syncs = [len(self.done)] * len(self.done), dict[int, list[int]]()
        for place, step in enumerate(self.done):
            if step.kind == "sync":
                for earlier in syncs.pop(step.node, []):
                    if earlier < step.begun:
                        first[earlier] = place
                    else:
                        syncs.setdefault(step.node, []).append(earlier)
            elif step.kind in ("data", "cut", "bind", "unbind"):
                syncs.setdefault(step.node, []).append(place)
        return first

    def told(self, cut: Cut, what: str) -> int:
        """Return the number of the last delta that was begun, or acknowledged, before a cut."""
        marks = (s.data.split() for s in self.done[: cut.after + 1] if s.kind == "mark")
        return max((int(number) for word, number in marks if word == what.encode()), default=0)

    def rebuild(self, cut: Cut, place: Path) -> None:
        """Write down what is left after a cut."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        names, files = dict[tuple[int, str], int](), dict[int, bytearray]()
        folders = {ROOT}
        for step in self._left(cut):
            if step.kind == "bind":
                names[step.node, step.name] = step.other
                if step.source is not None and names.get(step.source) == step.other:
                    del names[step.source]
                if step.is_folder:
                    folders.add(step.other)
            elif step.kind == "unbind":
                names.pop((step.node, step.name), None)
            else:
                _change(files.setdefault(step.node, bytearray()), step)
        folders |= {step.other for step in self.done if step.is_folder}
        _write_out(place, ROOT, names, files, folders)

    def _left(self, cut: Cut) -> Iterator[Step]:
        """Yield what the disk has, in the order in which it was done."""
        draw = Random(repr(cut))
        ends = dict[int, int]()  # a prefix: how many more steps a file or folder keeps
        for place, step in enumerate(self.done[: cut.after + 1]):
            if step.kind in ("sync", "mark", "parent", "parent bind"):
                continue
            if self._synced[place] <= cut.after:
                yield step
            else:
                yield from _kept(step, cut.way, draw, ends)


def _kept(step: Step, way: str, draw: Random, ends: dict[int, int]) -> Iterator[Step]:
    """Yield what is left of a step that was not synced."""
    naming = step.kind in ("bind", "unbind")
    if way == "everything" or way == ("names only" if naming else "data only"):
        yield step
    elif way == "a prefix":
        left = ends.setdefault(step.node, draw.choice((0, 1, 2, 3, 5, 8, 20)))
        ends[step.node] = left - 1
        if left > 0:
            yield step
        elif left == 0 and step.kind == "data":
            yield _torn(step, draw.randrange(0, len(step.data) + 1, SECTOR))
    elif way == "any part":
        if step.kind != "data":
            yield from [step] if draw.random() < 0.5 else []
        else:
            yield from _sectors(step, draw)


def _torn(step: Step, size: int) -> Step:
    return Step("data", step.node, step.begun, offset=step.offset, data=step.data[:size])


def _sectors(step: Step, draw: Random) -> Iterator[Step]:
    """Yield some sectors of what was written: all, none, some, or only the length of them."""
    whole = draw.choice(("all", "none", "some", "length"))
    if whole == "all":
        yield step
    elif whole == "length":  # zeros where there was nothing
        yield Step("grow", step.node, step.begun, offset=step.offset + len(step.data))
    elif whole == "some":
        size = draw.choice((SECTOR, 4096))
        first = -step.offset % size  # sectors are those of the file, not of the call
        edges = sorted({0, *range(first, len(step.data), size), len(step.data)})
        for start, end in pairwise(edges):
            if draw.random() < 0.5:
                yield Step(
                    "data", step.node, step.begun, offset=step.offset + start,
                    data=step.data[start:end],
                )  # fmt: skip


def _change(content: bytearray, step: Step) -> None:
    end = step.offset + len(step.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if step.kind == "cut":
        del content[step.offset :]
    elif step.kind == "data":
        content[step.offset : end] = step.data


def _write_out(
    place: Path,
    node: int,
    names: dict[tuple[int, str], int],
    files: dict[int, bytearray],
    folders: set[int],
) -> None:
    for (above, name), found in names.items():
        if above != node or name.endswith("-shm"):
            continue
        if found in folders:
            (place / name).mkdir()
            _write_out(place / name, found, names, files, folders)
        else:
            (place / name).write_bytes(files.get(found, b""))
