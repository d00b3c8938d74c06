"""What tables 3 and 5 will take on a dataset, told before they start."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psutil

from evergraph.core.errors import ConfigurationError
from evergraph.core.sizes import shown
from evergraph.experiments.planning.constants import Constants, interpolated, read_constants
from evergraph.experiments.planning.graph_facts import GraphFacts, facts_of
from evergraph.experiments.planning.learning import Learning, learning_of
from evergraph.experiments.planning.machine import Machines
from evergraph.experiments.planning.plan import make_plan
from evergraph.experiments.planning.tasks import Cut, task_cuts
from evergraph.experiments.presets import presets, read_preset
from evergraph.nn import backbones
from evergraph.studies.paper import papers_name

if TYPE_CHECKING:
    from evergraph.nn.gcn import GCN

HIDDEN = 256  # units of the baselines' GCN and of tem's head
STATES = 12  # arrays as wide as the hidden layer that a step of a GNN holds at once, at the most
_LINK = 1e9  # bytes a second: one machine has no use for it


@dataclass(frozen=True)
class Forecast:
    """What one seed takes on the processors of this machine.

    Attributes:
        dataset: its name.
        tasks: how many.
        tem, gnn: seconds of PDGNNs-TEM, and of fine-tuning a GNN, which other methods add to; tem
            is None where it does not fit into memory as planned.
        memory: bytes of a run at the most.
    """

    dataset: str
    tasks: int
    tem: float | None
    gnn: float
    memory: float

    def told(self, runs: int) -> str:
        """Return it as one line.

        >>> Forecast("arxiv", 20, 95.0, 7300.0, 2e9).told(72)
        'arxiv: 72 runs of 20 tasks; on processors about 2 min a seed for tem, from 2.0 h on for \
each method on a GNN, 2.0 GB of memory a run'
        """
        tem = "no way to fit tem" if self.tem is None else f"about {_span(self.tem)} a seed for tem"
        return (
            f"{self.dataset}: {runs} run{'s' if runs > 1 else ''} of {self.tasks} tasks; on "
            f"processors {tem}, from {_span(self.gnn)} on for each method on a GNN, "
            f"{shown(self.memory)} of memory a run"
        )


def forecast(dataset: str) -> Forecast | None:
    """Return what a dataset of the catalogue will take; None of one that is not in it."""
    try:
        facts = facts_of(dataset)
    except ConfigurationError:
        return None
    cores, memory = os.cpu_count() or 1, int(psutil.virtual_memory().total)
    constants = read_constants()
    machine = Machines(1, cores, memory, _LINK)
    best = make_plan(facts, machine, papers_tem(facts), constants).best
    seconds, held = gnn_costs(facts, constants, cores)
    return Forecast(
        dataset,
        len(task_cuts(facts)),
        None if best is None else best.seconds,
        seconds,
        max(held, 0.0 if best is None else best.memory),
    )


def papers_tem(facts: GraphFacts) -> Learning:
    """Return PDGNNs-TEM as the paper's preset trains it: all examples at once, so many epochs."""
    name = f"paper/table3/{papers_name(facts.name)}-tem"
    preset = read_preset(name if name in presets() else "paper")
    learning = learning_of("tem", features=facts.features, hops=2, width=HIDDEN)
    return replace(
        learning,
        epochs=preset["training"]["epochs"],
        batch=facts.nodes,
        stored=preset["memory"]["budget"],
    )


def gnn_costs(facts: GraphFacts, constants: Constants, cores: int) -> tuple[float, float]:
    """Return the seconds of fine-tuning a GCN over a stream, and the bytes that it holds.

    A step is a forward and a backward pass, three times the work of answering; after a task, all
    nodes seen so far are answered once.
    """
    gcn: type[GCN] = backbones.resolve("gcn")  # type: ignore[assignment]
    seconds, most = 0.0, 0
    for task in task_cuts(facts):
        classes = len(facts.class_sizes)
        step = 3 * pass_seconds(task.own, facts.features, classes, constants, cores)
        seconds += gcn.recipe.epochs * (step + constants.step_s)
        seconds += pass_seconds(task.seen, facts.features, classes, constants, cores)
        most = max(most, task.own.nodes)
    # The graph, its tasks' and that of everything seen so far are held at once.
    held = 2 * (facts.adjacency_bytes + facts.feature_bytes) + 4 * STATES * HIDDEN * most
    return seconds, held + constants.process_bytes


def pass_seconds(cut: Cut, features: int, classes: int, constants: Constants, cores: int) -> float:
    """Return what one pass of a GCN of two layers over a graph takes.

    Products of every node with the weights, and a gathering of every entry a layer.
    """
    flops = 2.0 * cut.nodes * HIDDEN * (features + classes)
    rate = interpolated(constants.answering, HIDDEN) * 1e9
    products = flops / rate / constants.speedup(constants.product_speedup, cores)
    each = constants.gather_ns(HIDDEN, 4.0 * HIDDEN * cut.nodes) * 1e-9
    each /= constants.speedup(constants.gather_speedup, cores)
    return products + 2 * (cut.entries + cut.nodes) * each


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
