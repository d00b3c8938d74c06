"""What a newcomer waits for: CPU seconds of small commands and of ``make run``; one thread or two.

python benchmarks/first_run.py [--quick] [--out benchmarks/results]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, in_own_process, run, times

from evergraph.core import device
from evergraph.core.seeding import seeded
from evergraph.methods import Finetune
from evergraph.streams import GraphStream
from evergraph.training import Trainer

EVERGRAPH = [sys.executable, "-m", "evergraph.cli.app"]
SMALL = (("--help",), ("list", "methods"), ("info", "wordnet"))
METHODS = "finetune,tem,auto,joint"
TOUR = ("run", "--dataset", "wordnet", "--preset", "tour", "--method", METHODS, "--report")
QUICK = (
    "run", "--dataset", "synthetic", "--set", "dataset.nodes=300", "--epochs", "2",
    "--method", "finetune,tem", "--report",
)  # fmt: skip
TASKS, EPOCHS = 4, 3


@dataclass(frozen=True)
class Cost:
    """What a command took.

    Attributes:
        cpu: user and system seconds of the process.
        clock: seconds until it ended.
        first: seconds until the first accuracy was on the screen; None if there was none.
    """

    cpu: float
    clock: float
    first: float | None = None


def cost_of(command: Sequence[str], *, cache: Path | None = None) -> Cost:
    """Run a command in a folder of its own; cache: where datasets are kept, if not as ever."""
    environment = dict(os.environ)
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if cache is not None:
        environment["EVERGRAPH_CACHE"] = str(cache)
    before, start, first = _children(), time.perf_counter(), None
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if first is None and "AA " in line:
                first = time.perf_counter() - start
        if process.wait():
            raise ValueError(f"{' '.join(command)} failed: {''.join(said[-3:])}")
    return Cost(_children() - before, time.perf_counter() - start, first)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command_table(commands: Mapping[str, Cost]) -> Table:
    """Return what every command took."""
    rows = [
        (name, f"{c.cpu:.1f}", f"{c.clock:.1f}", "-" if c.first is None else f"{c.first:.1f}")
        for name, c in commands.items()
    ]
    notes = (
        "User and system time of the process, after installation. On a busy machine only the first "
        "column means much.",
        "The first time, WordNet's features are computed and kept in the cache.",
    )
    columns = ("command", "CPU seconds", "clock", "first accuracy after")
    return Table("Commands", columns, rows, notes)


def four_tasks(case: str, count: int, epochs: int) -> tuple[float, float]:
    """Return the CPU and clock seconds of training on some tasks with so many threads a step."""
    torch.set_num_threads(count)
    device.WORK_A_THREAD = 1  # every step is worth all of them
    stream = GraphStream(CASES[case].load())
    learner = Finetune(
        trainer=Trainer(epochs=epochs, device="cpu"),
        generator=seeded(0, "learner"),
    )
    learner.fit_task(stream.open(0))  # so that what is loaded on first use is there
    before, start = time.process_time(), time.perf_counter()
    for index in range(min(TASKS, len(stream))):
        learner.fit_task(stream.open(index))
    return time.process_time() - before, time.perf_counter() - start


def thread_table(case: str, *, epochs: int, rounds: int) -> Table:
    """Return one thread against two."""
    os.environ.pop("OMP_NUM_THREADS", None)  # some BLAS take it for the most they may ever use
    best: dict[int, tuple[float, float]] = {}
    for _ in range(rounds):
        for count in (1, 2):
            found = in_own_process(four_tasks, case, count, epochs)
            known = best.get(count, found)
            best[count] = min(known[0], found[0]), min(known[1], found[1])
    (cpu, clock), (cpu_two, clock_two) = best[1], best[2]
    rows = [
        (name, f"{used:.1f}", times(used / cpu), f"{waited:.1f}", times(waited / clock))
        for name, used, waited in (("one", cpu, clock), ("two", cpu_two, clock_two))
    ]
    notes = (
        "finetune with the default recipe, steps of 512 rows; the best of "
        f"{rounds} rounds of each, in turns.",
        "The trainer itself gives these steps one thread: decision record 30.",
    )
    columns = ("threads a step", "CPU seconds", "", "clock", "")
    title = f"Training on {TASKS} tasks of {case}, {epochs} epochs"
    return Table(title, columns, rows, notes)


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    costs = {f"evergraph {' '.join(c)}": cost_of([*EVERGRAPH, *c]) for c in SMALL}
    tour = QUICK if options.quick else TOUR
    name = "a small comparison" if options.quick else "make run"
    with tempfile.TemporaryDirectory() as cache:
        costs[f"{name}, the first time"] = cost_of([*EVERGRAPH, *tour], cache=Path(cache))
        if not options.quick:
            costs[name] = cost_of([*EVERGRAPH, *tour], cache=Path(cache))
    case = "synthetic-500" if options.quick else "wordnet"
    compared = thread_table(case, epochs=EPOCHS, rounds=1 if options.quick else 2)
    return [command_table(costs), compared]


if __name__ == "__main__":
    run("first_run", "The first run", tables)
