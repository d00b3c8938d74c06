"""papers100M's twin at several scales: what drawing, embedding and learning it cost an entry.

python benchmarks/speed/papers.py [--quick] [--scales 0.001,0.01,0.03] [--features 128]
    [--limit 4GB] [--stages generate,embed,learn] [--cache FOLDER] [--out benchmarks/results]

Every stage runs in a process of its own, within the limit (drawing has none, and says what it
takes). Graphs are kept in the cache: a scale that is there is not drawn again, and has no row.
``--scales 0.7 --features 16`` is a graph of more than 2^31 entries: it takes 15 GB of disk, 25 GB
while it is drawn.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import RESULTS, Table, in_own_process, megabytes, peak_of, report, share
from benchmarks.speed.twin_graphs import PapersTwin, twin_facts

from evergraph.core.mapped import put
from evergraph.core.resources import Resources
from evergraph.core.sizes import parse_size
from evergraph.datasets import default_cache
from evergraph.experiments.protocol import TaskReport
from evergraph.experiments.runner import Observer, run
from evergraph.graphs.graph_folder import GraphFolderWriter, is_graph_folder, open_graph_folder
from evergraph.topology import SGC, EmbeddingCache

SCALES = (0.003, 0.01, 0.03)
QUICK_SCALES = (0.0001, 0.0002)
HOPS = 2
TITLE = "papers100M's twin on one machine"


@dataclass(frozen=True)
class Case:
    """A twin, and the memory that may be taken."""

    scale: float
    features: int
    limit: int
    cache: Path

    @property
    def twin(self) -> PapersTwin:
        """The dataset."""
        return PapersTwin(scale=self.scale, features=self.features)

    @property
    def embedded(self) -> Path:
        """Where the embeddings of its labelled nodes are kept."""
        folder = self.twin.folder(self.cache)
        return folder.with_name(f"{folder.name}-embedded")


@dataclass(frozen=True)
class Cost:
    """What one stage took.

    read, written: bytes that went from and to the disk. What the system still had in its cache
    was not read again.
    """

    stage: str
    case: Case
    entries: int
    seconds: float
    cpu: float
    read: int
    written: int
    peak: int

    @property
    def billions(self) -> float:
        """Entries, in billions."""
        return self.entries / 1e9


def measured(stage: str, case: Case) -> Cost:
    """Run one stage; to be called in a process of its own."""
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    logging.getLogger("evergraph").setLevel(logging.INFO)  # how far it is
    before, start, cpu = _disk(), time.perf_counter(), time.process_time()
    entries, peak = peak_of(lambda: STAGES[stage](case))
    after = _disk()
    return Cost(
        stage,
        case,
        entries,
        time.perf_counter() - start,
        time.process_time() - cpu,
        after[0] - before[0],
        after[1] - before[1],
        peak,
    )


def generate(case: Case) -> int:
    """Draw the twin; return its entries."""
    return case.twin.load(case.cache).num_edges


def embed(case: Case) -> int:
    """Embed all nodes by two hops; keep those that have a class, as a graph without edges."""
    graph = case.twin.load(case.cache)
    embeddings = EmbeddingCache(SGC(hops=HOPS), resources=Resources(memory_limit=case.limit))(graph)
    labelled = (graph.labels >= 0).nonzero().flatten()
    writer = GraphFolderWriter(case.embedded)
    writer.create("indptr", (len(labelled) + 1,), torch.int32)
    writer.create("indices", (0,), torch.int32)
    put(writer.create("labels", (len(labelled),), torch.int64), 0, graph.labels[labelled])
    features = writer.create("features", (len(labelled), embeddings.shape[1]), torch.float32)
    put(features, 0, embeddings[labelled])
    writer.finish(undirected=True)
    return graph.num_edges


def learn(case: Case) -> int:
    """Learn the stream of tasks by ``auto`` from the embeddings that were kept."""
    log = logging.getLogger("evergraph.papers")

    def told(_: int, report: TaskReport) -> None:
        accuracy = {way: mean(rows["balanced"]) for way, rows in report.rows.items()}
        log.info("%d tasks in %.0f CPU s: %s", report.index + 1, time.process_time(), accuracy)

    run(
        open_graph_folder(case.embedded),
        "auto",
        resources=Resources(memory_limit=case.limit),
        observer=Observer(on_task=told),
        progress=False,
        keep_learner=False,
    )
    return case.twin.load(case.cache).num_edges


STAGES: dict[str, Callable[[Case], int]] = {"generate": generate, "embed": embed, "learn": learn}


def _disk() -> tuple[int, int]:
    """Return the bytes that this process has read from and written to disks so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    found = dict(line.split(": ") for line in lines)
    return int(found["read_bytes"]), int(found["write_bytes"])


def cost_table(costs: Sequence[Cost]) -> Table:
    """Return every stage at every scale."""
    rows = [
        [
            cost.stage,
            f"{cost.case.scale:g}",
            f"{cost.case.features}",
            f"{cost.entries / 1e6:,.1f}",
            f"{cost.seconds:,.1f}",
            f"{cost.cpu:,.1f}",
            f"{cost.seconds / cost.billions:,.0f}",
            f"{cost.cpu / cost.billions:,.0f}",
            megabytes(cost.read),
            megabytes(cost.written),
            megabytes(cost.peak),
            "-" if cost.stage == "generate" else share(cost.peak, cost.case.limit),
        ]
        for cost in costs
    ]
    return Table(
        "Cost (a process each)",
        (
            "stage",
            "scale",
            "features",
            "million entries",
            "seconds",
            "CPU seconds",
            "seconds a billion entries",
            "CPU seconds a billion",
            "MB read",
            "MB written",
            "peak MB",
            "of the limit",
        ),
        rows,
        (
            "read, written: from and to the disk, by /proc/self/io; what the system had cached is not "
            "counted. peak: of the whole process, pages of files included.",
        ),
    )


def projected(costs: Sequence[Cost], entries: int, of: Callable[[Cost], float]) -> float:
    """Return what so many entries would cost: a line through the smallest and the largest scale.

    It begins at 0 where there is one scale, or where the line would begin below.
    """
    first, last = costs[0], costs[-1]
    slope = of(last) / last.entries
    if last.entries > first.entries:
        slope = min(slope, (of(last) - of(first)) / (last.entries - first.entries))
    return of(last) + max(slope, 0.0) * (entries - last.entries)


def projection_table(costs: Sequence[Cost]) -> Table:
    """Return what every stage would take on the whole of papers100M."""
    original = twin_facts()["papers-twin"].original
    entries, width = 2 * original.edges, original.features
    rows = []
    for stage in dict.fromkeys(cost.stage for cost in costs):
        found = sorted((c for c in costs if c.stage == stage), key=lambda cost: cost.entries)
        wider = width / found[-1].case.features if stage == "embed" else 1.0
        clocks: Sequence[Callable[[Cost], float]] = (lambda c: c.seconds, lambda c: c.cpu)
        hours = [wider * projected(found, entries, of) / 3600 for of in clocks]
        rows.append(
            [
                stage,
                ", ".join(f"{cost.case.scale:g}" for cost in found),
                f"{entries / found[-1].entries:,.1f}",
                f"{wider:g}",
                *(f"{each:,.2f}" for each in hours),
            ]
        )
    return Table(
        f"Projection to {entries / 1e9:.2f} billion entries of {width} features",
        ("stage", "from scales", "times the entries", "times as wide", "hours", "CPU hours"),
        rows,
        (
            "A line through the smallest and the largest scale, from 0 if there is one scale only; of "
            "an embedding, times the width. A disk that holds the files but not in the system's cache "
            "adds the time to read them: compare the bytes read.",
        ),
    )


def tables(cases: Sequence[Case], stages: Sequence[str]) -> list[Table]:
    """Measure everything."""
    costs = [
        in_own_process(measured, stage, case)
        for case in cases
        for stage in stages
        if stage != "generate" or not is_graph_folder(case.twin.folder(case.cache))
    ]
    return [cost_table(costs), projection_table(costs)]


def main() -> None:
    """Read the options, measure, print and write."""
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--quick", action="store_true", help="tiny graphs, under a minute")
    parser.add_argument("--scales", help="of the twin, separated by commas")
    parser.add_argument("--features", type=int, default=128, help="width (the original's, 128)")
    parser.add_argument("--limit", type=parse_size, default="4GB", help="of memory (4GB)")
    parser.add_argument("--stages", default=",".join(STAGES), help="separated by commas")
    parser.add_argument("--cache", type=Path, help="where twins are kept (the usual cache)")
    parser.add_argument("--out", type=Path, help=f"folder for the report ({RESULTS})")
    given = parser.parse_args()
    scales: Sequence[float] = QUICK_SCALES if given.quick else SCALES
    if given.scales is not None:
        scales = [float(scale) for scale in given.scales.split(",")]
    cache = given.cache
    with tempfile.TemporaryDirectory() as aside:
        if cache is None:
            cache = Path(aside) if given.quick else default_cache()
        cases = [Case(scale, given.features, given.limit, cache) for scale in scales]
        text = report(
            "papers", TITLE, tables(cases, given.stages.split(",")), arguments=sys.argv[1:]
        )
    print(text)
    out = given.out if given.out is not None or given.quick else RESULTS
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "papers.md").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
