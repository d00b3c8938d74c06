"""Whether a plan is right: time and peak memory of whole runs against what was told before.

python benchmarks/planned.py [--quick] [--threads N] [--out benchmarks/results]

Constants are measured before every run, so that a busy neighbour slows both. Where the machine is
shared, --threads 1 compares seconds of the processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
import torch
from benchmarks.measure import Options, Table, in_own_process, megabytes, run, times

from evergraph.core.sizes import parse_size
from evergraph.datasets import load
from evergraph.experiments.planning.fitting import Way
from evergraph.experiments.planning.graph_facts import facts_of
from evergraph.experiments.planning.learning import learning_of
from evergraph.experiments.planning.machine import Machines
from evergraph.experiments.planning.measuring import measure
from evergraph.experiments.planning.plan import make_plan

DATASET = "products-twin"


@dataclass(frozen=True)
class Case:
    """One run: a scale of the twin, a method and its width, a limit if there is one."""

    scale: float
    method: str = "analytic"
    width: int = 512
    limit: str | None = None


CASES = (Case(0.1, width=2048), Case(0.3, limit="1500MB"), Case(1.0), Case(0.05, "auto", 1024))
QUICK = (Case(0.01, width=64), Case(0.02, width=64), Case(0.04, width=64, limit="700MB"))


@dataclass(frozen=True)
class Taken:
    """What a run took: seconds on the wall and of all threads, and the peak of its memory."""

    wall: float
    processor: float
    peak: int


def main(options: Options) -> list[Table]:
    """Plan and run every case."""
    return [compared(QUICK if options.quick else CASES)]


def compared(cases: tuple[Case, ...]) -> Table:
    """Return what was planned beside what was taken."""
    rows = []
    for case in cases:
        load(DATASET, scale=case.scale)  # drawn before the clock runs
        way, taken = planned(case), ran(case)
        print(case, round(way.seconds, 1), round(way.memory / 1e6), taken, file=sys.stderr)
        rows.append(
            (
                f"{case.method}, width {case.width}, scale {case.scale:g}",
                case.limit or "none",
                f"{way.seconds:.1f}",
                f"{taken.wall:.1f}",
                times(way.seconds / taken.wall),
                f"{taken.processor:.1f}",
                megabytes(way.memory),
                megabytes(taken.peak),
                times(way.memory / taken.peak),
            )
        )
    return Table(
        f"Plans and runs of {DATASET}, {torch.get_num_threads()} threads",
        ("run", "limit", "planned s", "s", "ratio", "CPU s", "planned MB", "peak MB", "ratio"),
        rows,
        (
            "The whole command `evergraph run`, from its start to its end; peak resident memory of "
            "its process, Python, torch and pages of files counted.",
        ),
    )


def planned(case: Case) -> Way:
    """Return the plan of a run on this machine, by constants measured now."""
    threads = torch.get_num_threads()
    # Elsewhere: a process inherits the peak of the one that it was started from.
    constants = in_own_process(measure, cores=threads)
    facts = facts_of(DATASET, scale=case.scale)
    memory = psutil.virtual_memory().total
    limit = None if case.limit is None else parse_size(case.limit)
    machine = Machines(1, threads, memory, 1.25e9, limit)
    learning = learning_of(case.method, features=facts.features, width=case.width)
    [way] = make_plan(facts, machine, learning, constants).ways
    assert way.misfit is None, way.misfit
    return way


def ran(case: Case) -> Taken:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "evergraph.cli.app", "run", "--dataset", DATASET]
    command += ["--set", f"dataset.scale={case.scale}", "--method", case.method, "--device", "cpu"]
    backbone = "view-features" if case.method == "auto" else "random-features"
    command += ["--backbone", backbone, "--set", f"backbone.width={case.width}", "--json"]
    if case.limit is not None:
        command += ["--memory-limit", case.limit]
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        child = subprocess.Popen(
            [*command, "--out", f"{out}/run"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
    assert status == 0, command
    return Taken(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


if __name__ == "__main__":
    run("planned", "Plans against runs", main)
