"""What `auto` with edges within owes to its sums, to its memory, and to how nodes are chosen.

python benchmarks/accuracy/memory_ablation.py [--quick] [--threads N] [--workers N] [--minutes 0]

Cells are kept in build/every_graph.jsonl, see ``every_graph``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from benchmarks.accuracy.every_graph import AUTO, GRAPHS, Cell, Job, Values, cells, measured
from benchmarks.graphs import CASES
from benchmarks.measure import Options, Table, run
from torch import Tensor

from evergraph.closed_form.answers import Answers
from evergraph.closed_form.ledger import LedgerEntries
from evergraph.closed_form.views import ViewRows
from evergraph.core.seeding import seeded
from evergraph.memory.samplers import Candidates, samplers
from evergraph.methods import methods
from evergraph.methods.auto import Auto
from evergraph.streams import Task

NODES = (25, 50, 100, 200, 400)  # of a class
SAMPLERS, SAMPLED = ("coverage", "herding", "k-centre"), 100
ORDERS = 3


@dataclass(kw_only=True, eq=False, repr=False)
class Ablated(Auto):
    """`auto` that keeps as many nodes of a class as it is told, chosen by any sampler.

    Args:
        sampler: chooses them by their features two hops away.
        alone: whether the heads on these nodes answer alone, with the mixture that suits them.
    """

    name = "auto-ablated"

    sampler: str = "uniform"
    alone: bool = False

    def fit_task(self, task: Task) -> None:
        self.task = task
        super().fit_task(task)

    def _limit(self, hop_dims: int) -> None:
        super()._limit(hop_dims)
        self.embeddings_.per_class = self.budget

    def _take_in(self, part: str, entries: LedgerEntries, rows: ViewRows) -> None:
        if part != "train" or self.sampler == "uniform":
            super()._take_in(part, entries, rows)
            return
        self._count(entries, rows)
        chosen = self._chosen(rows, entries.labels)
        assert rows.nodes is not None
        some = self._with_codes(rows.of(rows.nodes[chosen.to(rows.nodes.device)]))
        self._limit(some.dims)
        self.embeddings_.keep(some, labels=entries.labels[chosen], nodes=entries.ids[chosen])

    def _chosen(self, rows: ViewRows, labels: Tensor) -> Tensor:
        hops = rows.taken(torch.device("cpu")).parts((*self.backbone.near, *self.backbone.far))
        candidates = Candidates(
            graph=self.task.graph.structure.to("cpu"),
            nodes=self.task.train.cpu(),
            labels=labels.cpu(),
            embeddings=hops[2],
            hops=2,
        )
        budgets = dict.fromkeys(labels.unique().tolist(), self.budget)
        sampler = samplers.resolve(self.sampler)()
        return sampler.select(candidates, budgets, generator=seeded(0, "sampler"))

    def solve(self) -> None:
        anew = not self.engine_.solved
        super().solve()
        if anew and self.alone:
            self._leave_memory_alone()

    def _leave_memory_alone(self) -> None:
        backbone, heads = self.backbone, self.embeddings_.heads
        assert heads is not None
        rows, labels = self._with_codes(self.probes_.rows_), self.probes_.labels_
        space = self._check_learned()
        answers = Answers(rows, labels, allowed=space.allowed(space.task_of(labels)))
        views = heads.map.views
        plain = [place for place, view in enumerate(views) if not view.codes]
        own = heads.map.scores_of(rows, [*heads.heads])
        weights = self.engine_.mixture(own, answers, plain).weights.cpu()
        backbone.memory_heads = replace(heads, weights=weights.repeat(2, 1))
        assert backbone.head is not None
        backbone.head.weight.data.zero_()
        backbone.bare.zero_()
        self.sharpness_ = backbone.memory_heads.weights.sum(1)


def ablated(job: Job) -> Cell:
    """Measure a job in a process of its own, in which there is such a method."""
    methods.register(Ablated)
    return measured(job)


def job_of(graph: str, **parameters: Any) -> Job:
    """Return a stream with some parameters of ``Ablated``, tested on validation nodes."""
    values: Values = {"method": {"name": Ablated.name, **parameters}, "part": "validation"}
    return Job("stream", graph, "local", 0, values)


def table_of(title: str, jobs: Mapping[str, Sequence[Job]], known: Mapping[str, Cell]) -> Table:
    """Return a table with a row for every name, and a column for every job."""
    columns = ["", *(job.graph for job in next(iter(jobs.values())))]
    found = {name: [known.get(job.key) for job in row] for name, row in jobs.items()}
    rows = [
        [name, *("-" if cell is None else f"{cell.accuracy:.1f}" for cell in cells)]
        for name, cells in found.items()
    ]
    return Table(title, columns, rows, ("Seed 0, tested local without labels, task by task.",))


def tables(options: Options) -> list[Table]:
    """Measure what is missing, and return the tables."""
    graphs = ["synthetic-500"] if options.quick else [g for g in GRAPHS if not CASES[g].missing]
    amounts, chosen_by = (NODES[:1], SAMPLERS[:1]) if options.quick else (NODES, SAMPLERS)
    by_size = {"sums alone": [job_of(g, budget=0) for g in graphs]}
    for n in amounts:
        alone = [job_of(g, budget=n, alone=True) for g in graphs]
        by_size |= {f"{n} a class, alone": alone}
        by_size |= {f"{n} a class, both": [job_of(g, budget=n) for g in graphs]}
    by_sampler = {}
    for name in chosen_by:
        chosen = {"sampler": name, "budget": amounts[0] if options.quick else SAMPLED}
        by_sampler[f"{name}, alone"] = [job_of(g, **chosen, alone=True) for g in graphs]
        by_sampler[f"{name}, both"] = [job_of(g, **chosen) for g in graphs]
    orders = {
        f"order {seed}": [Job("stream", g, "local", 0, ordered(g, seed)) for g in graphs]
        for seed in range(1 if options.quick else ORDERS)
    }
    named = {
        "Sums, memory, and both, by nodes kept of a class: validation nodes": by_size,
        f"{SAMPLED} nodes of a class, by sampler: validation nodes": by_sampler,
        "`auto`, three orders of the same tasks: test nodes": orders,
    }
    jobs = [job for rows in named.values() for row in rows.values() for job in row]
    known = cells(jobs, workers=options.workers, minutes=options.minutes, measure=ablated)
    return [table_of(title, rows, known) for title, rows in named.items()]


def ordered(graph: str, seed: int) -> Values:
    """Return the configuration with the usual tasks in another order; 0: the usual one."""
    classes = CASES[graph].load().labels.unique()
    classes = classes[classes >= 0]
    whole = len(classes) // 2  # a single class at the end is left out of every stream
    pairs, rest = classes[: 2 * whole].view(-1, 2), classes[2 * whole :]
    order = torch.randperm(whole, generator=seeded(seed, "tasks"))
    placed = torch.cat([(pairs[order] if seed else pairs).flatten(), rest]).tolist()
    return {**AUTO, "stream": {"order": placed}}


if __name__ == "__main__":
    run("memory_ablation", "What `auto` owes to its sums and to its memory", tables)
