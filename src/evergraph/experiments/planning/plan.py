"""A plan: every way to do a job on the machines that there are, and the best of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from evergraph.core.checks import check_choice
from evergraph.core.sizes import shown
from evergraph.experiments.planning.constants import Constants
from evergraph.experiments.planning.encoding import DoesNotFit, embed_here
from evergraph.experiments.planning.fitting import Way, explained
from evergraph.experiments.planning.graph_facts import GraphFacts
from evergraph.experiments.planning.holding import Holding
from evergraph.experiments.planning.learning import Learning, Size
from evergraph.experiments.planning.machine import Machines
from evergraph.experiments.planning.steps import Step, added_up
from evergraph.experiments.planning.streaming import Stream
from evergraph.experiments.planning.ways import WAYS

Job = Literal["run", "embed"]
JOBS: tuple[str, ...] = get_args(Job)


@dataclass(frozen=True)
class Plan:
    """All ways to do a job.

    Attributes:
        facts, machines, learning: what is planned, on what, and for which method.
        job: ``run``, a whole stream, or ``embed``, all nodes once and a stream on the result.
        ways: in the order in which they were looked at.
    """

    facts: GraphFacts
    machines: Machines
    learning: Learning
    job: Job
    ways: tuple[Way, ...]

    @property
    def best(self) -> Way | None:
        """The fastest way that fits, None where none does."""
        fitting = [way for way in self.ways if way.misfit is None]
        return min(fitting, key=lambda way: way.seconds, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        best = self.best
        return {
            "facts": asdict(self.facts) | {"class_sizes": list(self.facts.class_sizes)},
            "machines": asdict(self.machines),
            "job": self.job,
            "method": self.learning.method,
            "best": None if best is None else best.name,
            "ways": [
                {
                    "name": way.name,
                    "seconds": way.seconds,
                    "embedding_seconds": way.embedding,
                    "bytes_moved": way.bytes_moved,
                    "memory": way.memory,
                    "disk": way.disk,
                    "misfit": way.misfit,
                    "steps": [asdict(step) for step in way.steps],
                }
                for way in self.ways
            ],
        }


def make_plan(
    facts: GraphFacts,
    machines: Machines,
    learning: Learning,
    constants: Constants,
    *,
    job: Job = "run",
    classes_per_task: int = 2,
) -> Plan:
    """Look at every way to do a job."""
    check_choice("job", job, JOBS)
    names = ["one machine"]
    if machines.count > 1:
        names += ["columns", "nodes", *(["rows"] if job == "embed" else [])]

    def look(name: str, machines: Machines) -> Way:
        return _way(name, facts, machines, learning, constants, job, classes_per_task)

    ways = [explained(look(name, machines), machines, look) for name in names]
    return Plan(facts, machines, learning, job, tuple(ways))


def _way(
    name: str,
    facts: GraphFacts,
    machines: Machines,
    learning: Learning,
    constants: Constants,
    job: Job,
    classes_per_task: int,
) -> Way:
    """Return a way with its steps, or with the reason why it does not fit."""
    used = replace(machines, count=1) if name == "one machine" else machines
    holding = Holding(base=constants.process_bytes, memory=used.memory, limit=used.limit)
    steps = [] if name == "one machine" else [Step("start Ray", "here", constants.ray_start_s)]
    stream = Stream(facts, learning, used, constants, WAYS[name], classes_per_task)
    try:
        if job == "embed":
            steps += _embedded(stream, holding)
            stream = _on_embeddings(stream)
        steps += stream.steps(holding)
    except DoesNotFit as misfit:
        reason = (
            f"{shown(misfit.needed)} of memory are needed for {misfit.what}, and "
            f"{shown(max(misfit.there, 0))} are left"
        )
        return Way(name, misfit=reason)
    disk = holding.on_disk
    if holding.peak > used.memory:
        reason = (
            f"{shown(holding.peak)} of memory are needed, and a machine has {shown(used.memory)}"
        )
        return Way(name, misfit=reason)
    return Way(name, added_up(steps), holding.peak, disk)


def _embedded(stream: Stream, holding: Holding) -> list[Step]:
    """Return the steps of embedding all nodes of a graph, once."""
    facts, learning = stream.facts, stream.learning
    if not facts.mapped:
        holding.hold("graph", facts.adjacency_bytes + facts.feature_bytes)
    size = Size(facts.nodes, facts.entries, mapped=facts.mapped)
    found: list[Step] = []
    for smoothing in learning.smoothings:
        found += stream.embed("all", size, smoothing, stream.place(holding))
        holding.drop("all")
    return found


def _on_embeddings(stream: Stream) -> Stream:
    """Return the stream on labelled nodes whose features are embeddings, without edges."""
    facts, learning = stream.facts, stream.learning
    bare = replace(facts, nodes=facts.labelled, entries=0, features=learning.dims, mapped=True)
    return replace(stream, facts=bare, embed=embed_here, edges=False)
