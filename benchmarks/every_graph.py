"""The default method on every real graph at hand, beside networks trained jointly.

python benchmarks/every_graph.py [--quick] [--out benchmarks/results] [--threads N]

Cells that were measured are kept in build/every_graph.jsonl and not measured again.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, in_own_process, run

from evergraph.core.device import denormals_flushed
from evergraph.evaluation import average_accuracy, average_forgetting, evaluate
from evergraph.evaluation.accuracy_matrix import matrix_of
from evergraph.experiments.build import build_learner, build_stream, resolved
from evergraph.experiments.config import RunConfig, merged
from evergraph.streams import GraphStream
from evergraph.streams.stream import Testing
from evergraph.training import Learner

GRAPHS = ("wordnet", "computers", "coauthor-cs", "actor", "blogcatalog", "uai2010")
SEEDS = (0, 1, 2)
FEW = 0.05  # of the labels
KEPT = Path("build/every_graph.jsonl")
# How nodes arrive, in which test graphs labels of training nodes show, and which way of testing.
COLUMNS: dict[str, tuple[dict[str, Any], Testing]] = {
    "global": ({"edges": "all", "known_labels": "global"}, "global"),
    "local": ({"edges": "within", "known_labels": "nowhere"}, "local"),
    "local with labels": ({"edges": "within", "known_labels": "everywhere"}, "local"),
}
TUNED: dict[str, Any] = {"method": "joint", "backbone": "tuned"}
JOINT: dict[str, dict[str, Any]] = {
    "joint, tuned": TUNED,
    "joint GCN": {"method": "joint", "backbone": "gcn"},
    "joint PDGNN": {"method": "joint", "backbone": "pdgnn"},
    "joint MLP": {"method": "joint", "backbone": "pdgnn", "topology": "identity"},
}
ABLATIONS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "random features": {"backbone": "view-features"},
    "one view of features": {"backbone": {"name": "landmark-features", "views": ["2", "2+y"]}},
    "no class codes": {
        "backbone": {"name": "landmark-features", "views": ["0|s", "0", "4", "0|1|2|4", "2"]}
    },
    "no degrees and lengths": {
        "backbone": {
            "name": "landmark-features",
            "views": ["0|1|2|4|r+y", "0", "4", "0|1|2|4|r", "2", "0+y"],
        }
    },
    "views weighed alike": {"method": {"name": "auto", "fusing": "equal"}},
    "fixed sharpness": {"method": {"name": "auto", "fusing": "shares"}},
}


@dataclass(frozen=True)
class Cell:
    """What came of one stream.

    Attributes:
        accuracy, forgetting: balanced AA and AF, in percent; forgetting None for what is trained
            on everything at the end.
        error: expected calibration error after the last task, in percent.
        seconds: of CPU, user and system, testing included.
        kept: bytes between tasks.
    """

    accuracy: float
    forgetting: float | None
    error: float
    seconds: float
    kept: int


def config_of(column: str, values: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a method in a column."""
    options, _ = COLUMNS[column]
    base = merged(RunConfig().to_dict(), {"method": "auto", "device": "auto"})
    base = merged(base, {"stream": {**options, "split_seed": "run"}})
    if column == "global" and values.get("method") != "joint":
        base = merged(base, {"method": {"name": "auto", "refresh": "embeddings"}})
    return resolved(RunConfig.of(merged(base, values)))


@denormals_flushed()
def streamed(graph: str, column: str, seed: int, values: Mapping[str, Any]) -> Cell:
    """Learn a stream task by task and test after each."""
    config, learner, stream = _made(graph, column, seed, values)
    testing, rows, start = COLUMNS[column][1], [], _cpu()
    error = 0.0
    for index in range(len(stream)):
        learner.fit_task(stream.open(index))
        found = evaluate(learner, stream, index, testings=[testing], part=config.part)
        rows.append(found.rows[testing]["balanced"])
        error = found.measures[testing]["calibration_error"] or 0.0
    matrix = matrix_of(rows)
    return Cell(
        100 * average_accuracy(matrix), 100 * average_forgetting(matrix), 100 * error,
        _cpu() - start, learner.usage.bytes,
    )  # fmt: skip


@denormals_flushed()
def at_once(graph: str, column: str, seed: int, values: Mapping[str, Any]) -> Cell:
    """Learn everything at once and test at the end."""
    config, learner, stream = _made(graph, column, seed, values)
    testing, last, start = COLUMNS[column][1], len(stream) - 1, _cpu()
    learner.fit_task(stream.open(last, cumulative=True))
    found = evaluate(learner, stream, last, testings=[testing], part=config.part)
    accuracy = 100 * mean(found.rows[testing]["balanced"])
    error = 100 * (found.measures[testing]["calibration_error"] or 0.0)
    return Cell(accuracy, None, error, _cpu() - start, learner.usage.bytes)


def _made(
    graph: str, column: str, seed: int, values: Mapping[str, Any]
) -> tuple[RunConfig, Learner, GraphStream]:
    config = config_of(column, values)
    loaded = CASES[graph].load()
    return config, build_learner(config, seed=seed), build_stream(config, loaded, seed=seed)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cell(kind: str, graph: str, column: str, seed: int, values: Mapping[str, Any]) -> Cell:
    """Return a cell, measured now in a process of its own unless it was before."""
    key = json.dumps([kind, graph, column, seed, values], sort_keys=True)
    known = _known()
    if key not in known:
        found = in_own_process(
            {"stream": streamed, "once": at_once}[kind], graph, column, seed, values
        )
        KEPT.parent.mkdir(exist_ok=True)
        with KEPT.open("a") as file:
            file.write(json.dumps([key, asdict(found)]) + "\n")
        known = _known()
    return Cell(**known[key])


def _known() -> dict[str, dict[str, Any]]:
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return dict(json.loads(line) for line in lines)


def tables(options: Options) -> list[Table]:
    """Measure everything, one cell after the other."""
    graphs = ["synthetic-500"] if options.quick else [g for g in GRAPHS if not CASES[g].missing]
    seeds = SEEDS[:1] if options.quick else SEEDS
    quick = {"backbone": {"name": "view-features", "width": 128}} if options.quick else {}
    few = {"training": {"epochs": 2}} if options.quick else {}
    return [
        *(_column(column, graphs, seeds, quick, few) for column in COLUMNS),
        _few_labels(graphs, seeds, quick, few),
        _ablation(graphs, quick),
    ]


def _column(
    column: str,
    graphs: Sequence[str],
    seeds: Sequence[int],
    quick: Mapping[str, Any],
    few: Mapping[str, Any],
) -> Table:
    contenders = {"auto": ("stream", quick)}
    contenders |= {name: ("once", {**values, **few}) for name, values in JOINT.items()}
    rows = []
    for name, (kind, values) in contenders.items():
        told = [name]
        for graph in graphs:
            # Networks do not look at labels nearby: showing them changes nothing.
            asked = "local" if kind == "once" and column != "global" else column
            cells = [cell(kind, graph, asked, seed, values) for seed in seeds]
            told.append(_shown(cells))
        rows.append(told)
    return Table(
        f"Tested {column}: balanced AA / AF, CPU seconds, MB kept",
        ("", *graphs),
        rows,
        (
            f"Test nodes, mean of {len(seeds)} seeds with a split each. Networks are trained on "
            "everything at the end, so they have no AF; they keep all data.",
        ),
    )


def _few_labels(
    graphs: Sequence[str],
    seeds: Sequence[int],
    quick: Mapping[str, Any],
    few: Mapping[str, Any],
) -> Table:
    contenders = {
        "auto": quick,
        "auto, on random features": {"backbone": "view-features", **quick},
        "joint, tuned": {**TUNED, **few},
    }
    rows = []
    for name, values in contenders.items():
        told = [name]
        for graph in graphs:
            laid = merged(dict(values), {"stream": {"labelled": FEW}})
            told.append(_shown([cell("once", graph, "global", seed, laid) for seed in seeds]))
        rows.append(told)
    return Table(
        f"Tested global, {FEW:.0%} of the labels: balanced accuracy, CPU seconds, MB kept",
        ("", *graphs),
        rows,
        (f"Test nodes, everything learned at once, mean of {len(seeds)} seeds with a split each.",),
    )


def _shown(cells: Sequence[Cell]) -> str:
    accuracy = f"{mean(c.accuracy for c in cells):.1f}"
    if cells[0].forgetting is not None:
        accuracy += f" / {mean(c.forgetting or 0.0 for c in cells):.1f}"
    seconds = mean(c.seconds for c in cells)
    kept = f", {mean(c.kept for c in cells) / 1e6:.0f} MB" if cells[0].kept else ""
    return f"{accuracy}, {seconds:.0f} s{kept}"


def _ablation(graphs: Sequence[str], quick: Mapping[str, Any]) -> Table:
    rows = []
    for name, values in ABLATIONS.items():
        laid = merged({**quick, "part": "validation"}, values)
        found = [cell("once", graph, column, 0, laid) for graph in graphs for column in ("global",)]
        rows.append([name, *(f"{c.accuracy:.1f}, {c.error:.1f}" for c in found)])
    return Table(
        "What each part adds: balanced accuracy, calibration error",
        ("", *graphs),
        rows,
        ("Validation nodes, tested global, one seed, everything learned at once.",),
    )


if __name__ == "__main__":
    run("every_graph", "The default method on every graph", tables)
