"""Seconds, bytes, and the Markdown that every benchmark prints and writes.

This machine is shared, so a figure means something only beside another one taken in the same
minutes: contenders take turns, and what is reported is a ratio of their best rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import gc
import multiprocessing
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import ParamSpec, TypeVar

import psutil
import torch

from evergraph.core.resources import peak_rss_bytes

RESULTS = Path(__file__).parent / "results"
P = ParamSpec("P")
T = TypeVar("T")


def seconds_of(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Run something once and return how long it took, by a clock on the wall unless given."""
    start = clock()
    work()
    return clock() - start


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    limit: float = 60.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return each contender's best seconds over some rounds in which all take turns.

    Each round starts with another contender. Past ``limit`` seconds no third round is begun. clock:
    ``time.process_time`` counts the seconds of all threads, and none that others take.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    start = time.perf_counter()
    for turn in range(rounds):
        if turn >= 2 and time.perf_counter() - start > limit:
            break
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            taken[name].append(seconds_of(contenders[name], clock))
    return {name: min(times) for name, times in taken.items()}


def in_own_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a module-level function in a fresh Python, so that nobody else's memory is counted."""
    threads = (torch.get_num_threads(),)
    context = multiprocessing.get_context("spawn")
    start = time.perf_counter()
    with context.Pool(1, torch.set_num_threads, threads) as pool:
        found = pool.apply(function, args, dict(kwargs))
    taken = time.perf_counter() - start
    print(f"{function.__name__}{args}: {taken:.0f} s, {found}", file=sys.stderr)
    return found


def extra_peak(work: Callable[[], object]) -> int:
    """Return by how many bytes the resident size rose at its highest while ``work`` ran.

    Its result counts; what was there before does not. Linux can set the high-water mark back;
    elsewhere it is the process's whole life's, an upper bound.
    """
    gc.collect()
    _give_back_freed_memory()
    _reset_peak()
    before: int = psutil.Process().memory_info().rss
    kept = work()
    peak = _peak()
    del kept
    return max(0, peak - before)


def _give_back_freed_memory() -> None:
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's only
        if trim is not None:
            trim(0)


def _reset_peak() -> None:
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    if sys.platform != "linux":
        return peak_rss_bytes()
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading, and what must be said about them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default=())

    def markdown(self) -> str:
        """Return the table as Markdown; every column but the first is set right."""
        rule = ["---"] + ["---:"] * (len(self.columns) - 1)
        lines = [f"| {' | '.join(cells)} |" for cells in (self.columns, rule, *self.rows)]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([f"## {self.title}", "", *lines, *([""] if notes else []), *notes])


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    quick: bool = False
    out: Path | None = None
    minutes: float | None = None
    workers: int = 1
    only: tuple[str, ...] = ()
    keep: Path | None = None


def run(name: str, title: str, measure: Callable[[Options], Sequence[Table]]) -> None:
    """Run one benchmark as a script: read the options, measure, print and write."""
    options = _options(title)
    text = report(name, title, measure(options), arguments=sys.argv[1:])
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{name}.md").write_text(text + "\n", "utf-8")


def _options(description: str) -> Options:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small graphs, under a minute")
    parser.add_argument(
        "--out",
        type=Path,
        help=f"folder for the report ({RESULTS}; with --quick nothing is written unless given)",
    )
    parser.add_argument("--threads", type=int, help="torch's threads (all cores)")
    parser.add_argument("--minutes", type=float, help="how long a soak goes on; others take none")
    parser.add_argument("--workers", type=int, default=1, help="streams measured side by side")
    parser.add_argument("--only", action="append", help="an attack by name; others take none")
    parser.add_argument("--keep", type=Path, help="where attacks find or leave their learner")
    given = parser.parse_args()
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    only = tuple(given.only or ())
    out = given.out if given.out is not None or given.quick or only else RESULTS
    return Options(given.quick, out, given.minutes, given.workers, only, given.keep)


def report(name: str, title: str, tables: Sequence[Table], *, arguments: Sequence[str] = ()) -> str:
    """Return the whole report: where and how it was measured, then the tables."""
    folder = Path(__file__).parent
    script = next(folder.rglob(f"{name}.py")).relative_to(folder.parent)
    command = shlex.join(["python", script.as_posix(), *arguments])
    head = [f"# {title}", "", *(f"- {line}" for line in (*machine(), f"command: `{command}`"))]
    return "\n\n".join(["\n".join(head), *(table.markdown() for table in tables)])


def machine() -> list[str]:
    """Return what a figure depends on besides the code."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "torch-geometric")]
    return [
        f"date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        f"machine: {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, "
        f"{platform.system()} {platform.machine()}, load average at the end {load}",
        f"python {platform.python_version()}, {', '.join(versions)}, "
        f"{torch.get_num_threads()} threads",
    ]


def ms(seconds: float) -> str:
    """Return seconds as milliseconds."""
    return f"{seconds * 1e3:,.1f}"


def times(ratio: float) -> str:
    """Return a ratio."""
    return f"{ratio:,.2f}x" if ratio < 100 else f"{ratio:,.0f}x"


def megabytes(size: float) -> str:
    """Return bytes as MB."""
    return f"{size / 1e6:,.0f}"
