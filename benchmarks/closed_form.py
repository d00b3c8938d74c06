"""A whole class-IL stream in closed form, beside ``tem``: how long, and how well.

Seconds on the clock depend on who else is there; CPU seconds (user and system, of all threads of
the process that learns) much less. The floor is what the products and factors of the closed form
alone would take at the rate that a large float32 product has in the same process.

python benchmarks/closed_form.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from benchmarks.graphs import CASES, present
from benchmarks.measure import Options, Table, in_own_process, run, times

from evergraph.core.device import denormals_flushed
from evergraph.evaluation import average_accuracy
from evergraph.evaluation.accuracy_matrix import matrix_of
from evergraph.experiments.build import build_learner, build_stream, resolved
from evergraph.experiments.config import RunConfig, merged
from evergraph.experiments.presets import read_preset
from evergraph.experiments.protocol import learn_stream
from evergraph.experiments.result import PHASES
from evergraph.methods.analytic import CHOICE_WIDTH, LADDER
from evergraph.streams import GraphStream

WIDTHS = (2048, 4096, 8192)
QUICK_WIDTHS = (128, 256)
QUICK_EPOCHS = 5
NAMES = ("wordnet", "computers")
BASE = "tem, the paper's recipe"
RATE_SIZE = 2048


@dataclass(frozen=True)
class Row:
    """One stream.

    Attributes:
        seconds: of everything, testing included, on the clock.
        cpu: user and system seconds of the same.
        floor: the fewest seconds that the closed form's own arithmetic takes; None for others.
        phases: the library's own seconds of embed, train and evaluate.
        accuracy: AA local and global, in percent.
        kept: bytes kept between tasks.
    """

    seconds: float
    cpu: float
    floor: float | None
    phases: Mapping[str, float]
    accuracy: tuple[float, float]
    kept: int


def contenders(widths: Sequence[int], *, epochs: int | None = None) -> dict[str, dict[str, Any]]:
    """Return the configurations that take turns, by name; the recipes' own epochs unless given."""
    closed = {
        f"analytic, width {width}": {
            "method": "analytic",
            "backbone": {"name": "random-features", "width": width},
        }
        for width in widths
    }
    replayed = {BASE: read_preset("paper"), "tem, the default recipe": {"method": "tem"}}
    if epochs is not None:
        few = {"training": {"epochs": epochs}}
        replayed = {name: merged(values, few) for name, values in replayed.items()}
    return {**replayed, **closed}


def multiplications(stream: GraphStream, *, dims: int, width: int) -> float:
    """Return how many products ``analytic`` cannot do without on a stream, testing included.

    Each is a multiplication and an addition. A row expanded: d m; counted in: half of m²; asked
    about: m C. A factor: a sixth of m³. Local exams are the same after every task, and expanded
    once. Embeddings are not counted.
    """
    narrow = min(width, CHOICE_WIDTH)
    total = 0.0
    for index in range(len(stream)):
        task = stream.open(index)
        total += len(task.train) * (dims * width + width**2 / 2)
        total += len(task.validation) * (dims * narrow + narrow**2 / 2)
        total += width**3 / 6 + len(LADDER) * narrow**3 / 6
        local, everyone = stream.exams(index, "local"), stream.exams(index, "global")
        total += sum(len(exam.nodes) for exam in (local[-1], *everyone)) * dims * width
        asked = sum(len(exam.nodes) for exam in (*local, *everyone))
        total += asked * width * task.label_space.num_classes
    return total


def product_rate(size: int = RATE_SIZE) -> float:
    """Return how many multiplications, with an addition each, a CPU second of products has."""
    matrix = torch.rand(size, size)
    taken = []
    for _ in range(3):
        start = time.process_time()
        matrix @ matrix
        taken.append(time.process_time() - start)
    return size**3 / min(taken)


@denormals_flushed()
def measure(case: str, values: Mapping[str, Any]) -> Row:
    """Learn and test one stream; in a process of its own, whose threads flush denormals too."""
    graph = CASES[case].load()
    config = resolved(RunConfig.of(merged(RunConfig().to_dict(), values)))
    learner, stream = build_learner(config, seed=0), build_stream(config, graph, seed=0)
    start, used = time.perf_counter(), time.process_time()
    reports = list(learn_stream(learner, stream))
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    floor = None
    if config.method.name == "analytic":
        width, dims = values["backbone"]["width"], graph.features.shape[1]
        floor = multiplications(stream, dims=dims, width=width) / product_rate()
    local, glob = (
        100 * average_accuracy(matrix_of([r.rows[testing]["balanced"] for r in reports]))
        for testing in ("local", "global")
    )
    phases = {phase: sum(r.seconds[phase] for r in reports) for phase in PHASES}
    return Row(seconds, cpu, floor, phases, (local, glob), learner.usage.bytes)


def tables(options: Options) -> list[Table]:
    """Measure everything, one stream after the other."""
    if options.quick:
        quick = contenders(QUICK_WIDTHS, epochs=QUICK_EPOCHS)
        return [table("synthetic-500", measured("synthetic-500", quick))]
    found, missing = present(NAMES)
    made = [table(case.name, measured(case.name, contenders(WIDTHS))) for case in found]
    return [*made[:-1], replace(made[-1], notes=(*made[-1].notes, *missing))]


def measured(case: str, configurations: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """Learn a stream with each configuration, one after the other."""
    return {name: in_own_process(measure, case, values) for name, values in configurations.items()}


def table(case: str, rows: Mapping[str, Row]) -> Table:
    """Return what came of one graph."""
    return Table(
        f"The whole class-IL stream of {case}, seed 0, test nodes",
        (
            "", "seconds", "CPU s", "floor", "of floor", *PHASES, "faster", "AA local", "gain",
            "AA global", "MB kept",
        ),
        [cells(name, row, rows[BASE]) for name, row in rows.items()],
        (
            "Faster (CPU seconds) and gain: against tem with the paper's recipe, testing after "
            "every task included. One stream each, one after the other.",
            f"Floor: seconds of the closed form's own arithmetic at the rate of a float32 product "
            f"of {RATE_SIZE:,} x {RATE_SIZE:,} in the same process. Embedding is not in it.",
            "A head in closed form is solved for when the first question comes: under evaluate.",
        ),
    )  # fmt: skip


def cells(name: str, row: Row, base: Row) -> list[str]:
    """Return a row as text."""
    return [
        name,
        f"{row.seconds:.1f}",
        f"{row.cpu:.1f}",
        "-" if row.floor is None else f"{row.floor:.1f}",
        "-" if row.floor is None else times(row.cpu / row.floor),
        *(f"{row.phases[phase]:.1f}" for phase in PHASES),
        times(base.cpu / row.cpu),
        f"{row.accuracy[0]:.1f}",
        f"{row.accuracy[0] - base.accuracy[0]:+.1f}",
        f"{row.accuracy[1]:.1f}",
        f"{row.kept / 1e6:,.1f}",
    ]


if __name__ == "__main__":
    run("closed_form", "Closed form against replay", tables)
