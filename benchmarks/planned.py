"""Whether a plan is right: processor time and peak memory of whole runs beside their forecasts.

python benchmarks/planned.py [--quick] [--out benchmarks/results]

Both are measured by the same code, in processes of their own, one after the other.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Options, Table, megabytes, run, times

from evergraph.experiments.build import load_graph
from evergraph.experiments.config import RunConfig
from evergraph.experiments.plan import learned_copy, plan_run

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CASES = [
    (dataset, method)
    for dataset in ("wordnet", str(DATA / "amazon_computers.npz"), str(DATA / "coauthor_cs.npz"))
    for method in ("auto", "tem", "analytic")
    if dataset == "wordnet" or Path(dataset).exists()
]
QUICK = [("synthetic", "tem"), ("synthetic", "analytic")]


def main(options: Options) -> list[Table]:
    """Plan and run every case."""
    return [compared(QUICK if options.quick else CASES, 10.0 if options.quick else 60.0)]


def compared(cases: list[tuple[str, str]], seconds: float) -> Table:
    """Return what was planned beside what was taken."""
    rows = []
    for dataset, method in cases:
        config = RunConfig.of({"dataset": dataset, "method": method})
        plan = plan_run(config, seconds=seconds).seed
        taken = learned_copy(config, load_graph(config)).cost
        rows.append(
            (
                Path(dataset).stem,
                method,
                f"{plan.processor:.1f}",
                f"{taken.processor:.1f}",
                times(plan.processor / taken.processor),
                megabytes(plan.memory),
                megabytes(taken.memory),
                times(plan.memory / taken.memory),
            )
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return Table(
        "Plans beside runs, one seed, from the opened run to its result",
        ("graph", "method", "planned s", "CPU s", "ratio", "planned MB", "peak MB", "ratio"),
        rows,
    )


if __name__ == "__main__":
    run("planned", "Plans beside runs", main)
