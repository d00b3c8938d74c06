"""The default method on every real graph at hand, beside the paper's and tuned networks.

python benchmarks/accuracy/every_graph.py [--quick] [--threads N] [--workers N]

Cells are kept in build/every_graph.jsonl and not measured twice: a stopped run goes on. With
several workers, cells are measured side by side, so their CPU seconds are an upper bound. With
``--minutes 0`` nothing is measured: the tables show the cells that are known.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, run

from evergraph.core.resources import denormals_flushed
from evergraph.evaluation import (
    average_accuracy,
    average_forgetting,
    balanced_accuracy,
    evaluate,
    rejection_auroc,
)
from evergraph.evaluation.evaluator import matrix_of
from evergraph.experiments.build import build_learner, build_stream, resolved
from evergraph.experiments.config import RunConfig, merged
from evergraph.graphs import UNLABELLED
from evergraph.graphs.csr import repeat, take_rows
from evergraph.online import Delta
from evergraph.online.learner import OnlineLearner
from evergraph.streams import GraphStream
from evergraph.streams.task import Testing
from evergraph.training.learner import Learner

GRAPHS = ("wordnet", "computers", "coauthor-cs", "actor", "blogcatalog", "uai2010")
SEEDS = (0, 1, 2)
RATES = (0.01, 0.05, 0.2)  # labelled shares; the other tables have 0.6
KEPT = Path("build/every_graph.jsonl")
# How nodes arrive, in which test graphs labels of training nodes show, and which way of testing.
COLUMNS: dict[str, tuple[dict[str, Any], Testing]] = {
    "global": ({"edges": "all", "known_labels": "global"}, "global"),
    "local": ({"edges": "within", "known_labels": "nowhere"}, "local"),
}
Values = Mapping[str, Any]
AUTO: Values = {"method": "auto"}
TUNED: Values = {"method": "joint", "backbone": "tuned"}
REFRESHED: Values = {"method": {"name": "auto", "refresh": "embeddings"}}
ABLATIONS: dict[str, Values] = {
    "all of it": {},
    "random features": {"backbone": "view-features"},
    "one view of features": {"backbone": {"name": "landmark-features", "views": ["2", "2+y"]}},
    "no class codes": {
        "backbone": {"name": "landmark-features", "views": ["0|s", "0", "4", "2|r"]}
    },
    "no degrees and lengths": {
        "backbone": {"name": "landmark-features", "views": ["0|2|4|r+y", "0", "4", "2|r", "0|2+y"]}
    },
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
        pooled: accuracy over all test nodes together after the last task, in percent.
        device: what it was measured on.
    """

    accuracy: float
    forgetting: float | None
    error: float
    seconds: float
    kept: int
    pooled: float | None = None
    device: str = "CPU"


@dataclass(frozen=True)
class Job:
    """One stream to be measured.

    Attributes:
        kind: ``stream``, learned and tested task by task, ``once``, all tasks together, ``ranked``,
            the same by the ROC AUC of two classes, or ``live``, by a live learner that is given a
            delta a task and the labels of training nodes.
        graph, column: by name.
        seed: of the run and of its split.
        values: of the configuration.
    """

    kind: str
    graph: str
    column: str
    seed: int
    values: Values

    @property
    def key(self) -> str:
        """What it is known by."""
        return json.dumps(list(asdict(self).values()), sort_keys=True)


def config_of(column: str, values: Values) -> RunConfig:
    """Return the configuration of a method in a column."""
    laid = {"device": "auto", "stream": {**COLUMNS[column][0], "split_seed": "run"}}
    return resolved(RunConfig.of(merged(merged(RunConfig().to_dict(), laid), values)))


@denormals_flushed()
def measured(job: Job) -> Cell:
    """Learn a stream, task by task or all of it at once, and test."""
    config, testing = config_of(job.column, job.values), COLUMNS[job.column][1]
    stream = build_stream(config, CASES[job.graph].load(), seed=job.seed)
    if job.kind == "live":
        return live(stream)
    learner, last, start = build_learner(config, seed=job.seed), len(stream) - 1, _cpu()
    found = []
    for index in range(len(stream)) if job.kind == "stream" else [last]:
        learner.fit_task(stream.open(index, cumulative=job.kind != "stream"))
        found.append(evaluate(learner, stream, index, testings=[testing], part=config.part))
    matrix = matrix_of([each.rows[testing]["balanced"] for each in found])
    accuracy = 100 * average_accuracy(matrix)
    forgetting = 100 * average_forgetting(matrix) if job.kind == "stream" else None
    sizes = torch.cat([e.tasks for e in stream.exams(last, testing, config.part)]).bincount()
    return Cell(
        accuracy=ranked(learner, stream) if job.kind == "ranked" else accuracy,
        forgetting=forgetting,
        error=100 * (found[-1].measures[testing]["calibration_error"] or 0.0),
        seconds=_cpu() - start,
        kept=learner.usage.bytes,
        pooled=float(100 * sizes / sizes.sum() @ torch.tensor(found[-1].rows[testing]["plain"])),
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    )


def ranked(learner: Learner, stream: GraphStream) -> float:
    """Return the ROC AUC of two classes on test nodes, in percent."""
    (exam,) = stream.exams(len(stream) - 1, "global")
    leads = learner.logits(exam.graph, exam.nodes).cpu().diff(dim=1).flatten()
    right = exam.labels == 1
    return 100 * rejection_auroc(leads[~right], leads[right])


def live(stream: GraphStream) -> Cell:
    """Give a live learner a delta a task, with the edges to all nodes so far.

    It is told the labels of validation nodes too, which ``auto`` chooses its penalties by.
    """
    learner, start = OnlineLearner(), _cpu()
    for task in stream:
        graph = task.graph.to("cpu")
        labels = torch.full((len(task.ids),), UNLABELLED)
        labels[task.train] = task.train_labels
        labels[task.validation] = task.validation_labels
        ends = graph.indices.long().repeat(2).view(2, -1)
        ends[1] = repeat(torch.arange(len(task.ids)), graph.indptr.diff())
        new = torch.isin(ends, task.own).any(0) & (ends[0] < ends[1])
        learner.apply(
            Delta(
                nodes=task.ids[task.own].tolist(),
                features=take_rows(graph.features, task.own),
                labels=[None if label < 0 else label for label in labels[task.own].tolist()],
                edges=task.ids[ends[:, new].t()].tolist(),
            )
        )
    taken = _cpu() - start
    (exam,) = stream.exams(len(stream) - 1, "global")
    given = torch.tensor(learner.predict(task.ids[exam.nodes].tolist()))
    here = [exam.tasks == index for index in exam.tasks.unique()]
    by_task = [balanced_accuracy(given[rows], exam.labels[rows]) for rows in here]
    right = given.eq(exam.labels).double()
    return Cell(
        accuracy=100 * mean(by_task),
        forgetting=None,
        error=0.0,
        seconds=taken,
        kept=learner.status().memory,
        pooled=100 * float(right.mean()),
    )


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def known_cells() -> dict[str, Cell]:
    """Return what was measured before, by key."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return {key: Cell(**values) for key, values in map(json.loads, lines)}


def cells(
    jobs: Iterable[Job], *, workers: int = 1, minutes: float | None = None
) -> dict[str, Cell]:
    """Return the cells of some jobs by key, measured now unless they were before.

    minutes: after which no more are measured.
    """
    known, start = known_cells(), time.monotonic()
    if minutes == 0:
        return known
    missing = list({job.key: job for job in jobs if job.key not in known}.values())
    KEPT.parent.mkdir(exist_ok=True)
    context, threads = multiprocessing.get_context("spawn"), (torch.get_num_threads(),)
    # A process each: what one leaves in memory and caches is not counted to the next.
    with (
        context.Pool(workers, torch.set_num_threads, threads, maxtasksperchild=1) as pool,
        KEPT.open("a") as file,
    ):
        for done, (job, cell) in enumerate(pool.imap_unordered(_with_job, missing), 1):
            print(f"{done} of {len(missing)}: {job.key}: {cell}", file=sys.stderr)
            if isinstance(cell, Cell):
                file.write(json.dumps([job.key, asdict(cell)]) + "\n")
                file.flush()
                known[job.key] = cell
            if minutes is not None and time.monotonic() - start > 60 * minutes:
                break
    return known


def _with_job(job: Job) -> tuple[Job, Cell | str]:
    try:
        return job, measured(job)
    except Exception as error:  # one cell that fails must not cost the others
        return job, repr(error)


@dataclass(frozen=True)
class Grid:
    """A table to be: contenders by graphs.

    Attributes:
        title: of the table.
        contenders: how each is called, with its kind, column and values.
        show: what a table shows of the cells of some seeds.
        note: what must be said.
        seeds: one cell each.
        graphs: if not those of other tables.
    """

    title: str
    contenders: Mapping[str, tuple[str, str, Values]]
    show: Callable[[Sequence[Cell]], str]
    note: str
    seeds: Sequence[int] = SEEDS
    graphs: Sequence[str] = ()

    def jobs(self, name: str, graph: str) -> list[Job]:
        """Return what a contender needs on a graph."""
        kind, column, values = self.contenders[name]
        return [Job(kind, graph, column, seed, values) for seed in self.seeds]

    def table(self, graphs: Sequence[str], known: Mapping[str, Cell]) -> Table:
        """Return the table; what was not measured is left empty."""
        rows, devices, graphs = [], set(), self.graphs or graphs
        for name in self.contenders:
            row = [name]
            for graph in graphs:
                keys = [job.key for job in self.jobs(name, graph)]
                found = [known[key] for key in keys if key in known]
                devices |= {cell.device for cell in found}
                fewer = f" (seeds: {len(found)})" if len(found) < len(keys) else ""
                row.append(self.show(found) + fewer if found else "-")
            rows.append(row)
        measured_on = f"Measured on: {', '.join(sorted(devices))}."
        return Table(self.title, ("", *graphs), rows, (self.note, measured_on))


def grids(*, quick: bool = False) -> list[Grid]:
    """Return every table that there is to make; ``quick`` has one seed and short training."""
    seeds, note = (
        (SEEDS[:1], "one seed") if quick else (SEEDS, "mean of three seeds with a split each")
    )
    short: Values = {"training": {"epochs": 2}} if quick else {}

    def values(given: Values, **others: Any) -> Values:
        return merged(merged(dict(given), short), others)

    def column(name: str) -> Grid:
        contenders = {
            "auto": ("stream", name, values(AUTO)),
            **({"live": ("live", name, {})} if name == "global" else {}),
            "tem": ("stream", name, values({"method": "tem"})),
            "finetune": ("stream", name, values({"method": "finetune"})),
            "joint, tuned": ("once", name, values(TUNED)),
        }
        return Grid(
            f"Tested {name}: balanced AA / AF, CPU seconds, MB kept",
            contenders,
            _shown,
            f"Test nodes, {note}. Tuned networks are trained on everything at the end, so they "
            "have no AF; they keep all data.",
            seeds,
        )

    def rate(share: float) -> Grid:
        laid = {"stream": {"labelled": share}}
        contenders = {
            "auto": ("once", "global", values(AUTO, **laid)),
            "live": ("live", "global", dict(laid)),
            "joint, tuned": ("once", "global", values(TUNED, **laid)),
        }
        return Grid(
            f"Tested global, {share:.0%} of the labels: balanced accuracy, CPU seconds, MB kept",
            contenders,
            _shown,
            f"Test nodes, everything learned at once, {note}.",
            seeds,
        )

    evenly = {"objective": "plain"}
    objective = Grid(
        "Tested global, by objective: accuracy over all test nodes, class-balanced accuracy",
        {
            "auto, plain": ("once", "global", values(AUTO, **evenly)),
            "auto, balanced": ("once", "global", values(AUTO)),
            "joint, tuned, plain": ("once", "global", values(TUNED, **evenly)),
        },
        lambda found: f"{_mean(found, 'pooled')}, {_mean(found, 'accuracy')}",
        f"Test nodes, everything learned at once, {note}.",
        seeds,
    )
    parts = Grid(
        "What each part adds: balanced accuracy, calibration error",
        {
            name: ("once", "global", values(merged(REFRESHED, laid), part="validation"))
            for name, laid in ABLATIONS.items()
        },
        lambda found: f"{_mean(found, 'accuracy')}, {_mean(found, 'error')}",
        "Validation nodes, tested global, one seed, everything learned at once.",
        SEEDS[:1],
    )
    laid = {"stream": {"split": "masks"}, **evenly}
    auc = Grid(
        "minesweeper on its published splits: ROC AUC, CPU seconds, MB kept",
        {"auto": ("ranked", "global", values(AUTO, **laid))},
        _shown,
        "Test nodes of ten splits, objective plain, everything learned at once.",
        seeds if quick else range(10),
        ("minesweeper",),
    )
    return [auc, column("global"), column("local"), *map(rate, RATES), objective, parts]


def _mean(found: Sequence[Cell], name: str) -> str:
    return f"{mean(getattr(cell, name) for cell in found):.1f}"


def _shown(found: Sequence[Cell]) -> str:
    accuracy = _mean(found, "accuracy")
    if found[0].forgetting is not None:
        accuracy += f" / {_mean(found, 'forgetting')}"
    kept = f", {mean(c.kept for c in found) / 1e6:.0f} MB" if found[0].kept else ""
    return f"{accuracy}, {mean(c.seconds for c in found):.0f} s{kept}"


def all_jobs(graphs: Sequence[str], wanted: Sequence[Grid]) -> list[Job]:
    """Return every job, those of the first tables first."""
    return [
        job
        for grid in wanted
        for name in grid.contenders
        for g in grid.graphs or graphs
        for job in grid.jobs(name, g)
    ]


def tables(options: Options) -> list[Table]:
    """Measure every cell that is missing, and return the tables."""
    graphs = ["synthetic-500"] if options.quick else [g for g in GRAPHS if not CASES[g].missing]
    wanted = grids(quick=options.quick)
    known = cells(all_jobs(graphs, wanted), workers=options.workers, minutes=options.minutes)
    return [grid.table(graphs, known) for grid in wanted]


if __name__ == "__main__":
    run("every_graph", "The default method on every graph", tables)
