"""Fetching published datasets before anything is learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evergraph.cli.output import say
from evergraph.core.errors import EvergraphError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from evergraph.datasets.fetching import Fetch
    from evergraph.datasets.published import Published


def fetch_all(names: Sequence[str], folder: Path | None, checksums: Path | None) -> dict[str, str]:
    """Fetch datasets, check and parse them; return why, by name, for those that are not at hand.

    Room for all of them is looked for before the first one. Sums are printed as sha256sum writes
    them, to be given back by --checksums.
    """
    from evergraph.datasets.base import datasets, default_cache
    from evergraph.datasets.download import read_sums, recorded
    from evergraph.datasets.fetching import Fetch
    from evergraph.datasets.published import Published

    sums = {} if checksums is None else read_sums(checksums)
    made = [datasets.make(name) for name in names]
    published = [dataset for dataset in made if isinstance(dataset, Published)]
    cache, missing = default_cache(), {}
    check_rooms(published, cache, Fetch(folder, sums))
    for dataset in published:
        with DownloadProgress() as progress:
            how = Fetch(folder, sums, on_progress=progress.on_progress)
            try:
                graph = dataset.load(cache, how)
            except EvergraphError as error:
                say(f"{dataset.name} is not at hand: {error}", err=True)
                missing[dataset.name] = str(error)
                continue
        say(f"{dataset.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, as published")
        for file, found in recorded(cache / dataset.name).items():
            say(f"{found}  {dataset.name}/{file}")
    return missing


def check_rooms(published: Sequence[Published], cache: Path, how: Fetch) -> None:
    """Raise unless the disk has room for all that is still to come."""
    from evergraph.core.sizes import check_room
    from evergraph.datasets.fetching.raw_files import MAKE_ROOM

    rooms = {dataset.name: dataset.raw(cache).room(how) for dataset in published}
    wanted = [name for name, room in rooms.items() if room]
    if wanted:
        check_room(cache, sum(rooms.values()), f"fetching {', '.join(wanted)}", remedy=MAKE_ROOM)


class DownloadProgress:
    """A bar for each file that comes, with its speed and the time left; in a log, lines."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        from evergraph.datasets.fetching.fetch import LoggedProgress

        console = Console(stderr=True)
        self._in_log = None if console.is_terminal else LoggedProgress()
        self._rows: dict[str, TaskID] = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> DownloadProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_progress(self, name: str, done: int, total: int | None) -> None:
        """Take in how much of a file has come."""
        if self._in_log is not None:
            self._in_log(name, done, total)
            return
        if name not in self._rows:
            self._rows[name] = self._bar.add_task(name, total=total, completed=done)
        self._bar.update(self._rows[name], completed=done, total=total)
