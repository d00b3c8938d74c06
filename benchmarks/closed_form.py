"""A whole class-IL stream in closed form, beside ``tem``: how long, and how well.

python benchmarks/closed_form.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, in_own_process, run, times

from evergraph.core.device import denormals_flushed
from evergraph.evaluation import average_accuracy
from evergraph.evaluation.accuracy_matrix import matrix_of
from evergraph.experiments.build import build_learner, build_stream, resolved
from evergraph.experiments.config import RunConfig, merged
from evergraph.experiments.presets import read_preset
from evergraph.experiments.protocol import learn_stream
from evergraph.experiments.result import PHASES

WIDTHS = (2048, 4096, 8192)
QUICK_WIDTHS = (128, 256)
QUICK_EPOCHS = 5
BASE = "tem, the paper's recipe"


@dataclass(frozen=True)
class Row:
    """One stream.

    Attributes:
        seconds: of everything, testing included.
        phases: the library's own seconds of embed, train and evaluate.
        accuracy: AA local and global, in percent.
        kept: bytes kept between tasks.
    """

    seconds: float
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


@denormals_flushed()
def measure(case: str, values: Mapping[str, Any]) -> Row:
    """Learn and test one stream; in a process of its own, whose threads flush denormals too."""
    graph = CASES[case].load()
    config = resolved(RunConfig.of(merged(RunConfig().to_dict(), values)))
    learner, stream = build_learner(config, seed=0), build_stream(config, graph, seed=0)
    start = time.perf_counter()
    reports = list(learn_stream(learner, stream))
    seconds = time.perf_counter() - start
    local, glob = (
        100 * average_accuracy(matrix_of([r.rows[testing]["balanced"] for r in reports]))
        for testing in ("local", "global")
    )
    phases = {phase: sum(r.seconds[phase] for r in reports) for phase in PHASES}
    return Row(seconds, phases, (local, glob), learner.usage.bytes)


def tables(options: Options) -> list[Table]:
    """Measure everything, one stream after the other."""
    case = CASES["synthetic-500" if options.quick else "wordnet"]
    quick = contenders(QUICK_WIDTHS, epochs=QUICK_EPOCHS)
    configurations = quick if options.quick else contenders(WIDTHS)
    rows = {
        name: in_own_process(measure, case.name, values) for name, values in configurations.items()
    }
    base = rows[BASE]
    cells = [
        [
            name,
            f"{row.seconds:.1f}",
            *(f"{row.phases[phase]:.1f}" for phase in PHASES),
            times(base.seconds / row.seconds),
            f"{row.accuracy[0]:.1f}",
            f"{row.accuracy[0] - base.accuracy[0]:+.1f}",
            f"{row.accuracy[1]:.1f}",
            f"{row.kept / 1e6:,.1f}",
        ]
        for name, row in rows.items()
    ]
    return [
        Table(
            f"The whole class-IL stream of {case.name}, seed 0, test nodes",
            ("", "seconds", *PHASES, "faster", "AA local", "gain", "AA global", "MB kept"),
            cells,
            (
                "Faster and gain: against tem with the paper's recipe, testing after every task "
                "included. One stream each, one after the other.",
            ),
        )
    ]


if __name__ == "__main__":
    run("closed_form", "Closed form against replay", tables)
