"""Methods that store nodes with part of the graph around them.

They are replayed beside the current nodes, or keep gradients from raising their loss (GEM, A-GEM).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.core.component import Made, choice, integer, number
from evergraph.core.seeding import exponential
from evergraph.graphs import Graph, forman_curvature
from evergraph.graphs.disjoint import disjoint_union
from evergraph.memory import (
    Candidates,
    EgoNetworks,
    MemoryUsage,
    SubgraphMemory,
    ego_networks,
    isolated,
)
from evergraph.memory.samplers import EmbeddingCoverageSampler
from evergraph.methods.base import MemoryLearner, methods
from evergraph.methods.examples import Examples, make_examples
from evergraph.nn import masked_cross_entropy
from evergraph.streams import Task


@dataclass(kw_only=True, eq=False, repr=False)
class RememberingLearner(MemoryLearner):
    """Stores nodes of every task with part of the graph around them.

    Args:
        memory: the sampler and the budget; by default 100 nodes per class, drawn uniformly.
    """

    memory: Made[SubgraphMemory] = Made()

    @classmethod
    def make_memory(cls, **options: Any) -> SubgraphMemory:
        return SubgraphMemory(**options)

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return the part of the graph to store around the chosen nodes; here no neighbours."""
        return isolated(graph, centres)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """Store some training nodes, chosen by the trained model's hidden states and residuals."""
        super().end_task(task)
        inputs, rows = self.backbone.prepare(task.graph), task.train.to(self.device)
        self.backbone.eval()
        hidden = self.backbone.hidden_states(inputs, rows)
        self.backbone.train()
        residuals = self.residuals(inputs, task.train_labels.to(self.device), rows)
        candidates = Candidates(
            task.graph, task.train, task.train_labels, hidden, self.backbone.hops, residuals
        )
        self.memory.store(candidates, task.met_sizes, keep=self.keep, generator=self.generator)


class ReplayingLearner(RememberingLearner):
    """Trains on the current task's nodes and on stored ones, each in its own graph.

    The two graphs form one disjoint graph, so a step is one pass through the backbone, and classes
    are weighted by 1/n_c over current and stored nodes together, as in ``tem``.
    """

    def examples(self, task: Task) -> Examples:
        if self.memory.graph_ is None:
            return super().examples(task)
        graph = disjoint_union([task.graph, self.memory.graph_.to(task.graph.device)])
        inputs = self.backbone.prepare(graph)
        nodes = torch.cat([task.train, self.memory.centres_ + task.graph.num_nodes])
        inputs, rows = self.backbone.narrowed(inputs, nodes.to(self.device))
        targets = torch.cat([task.train_labels, self.memory.labels_]).to(self.device)
        stored = len(self.memory)
        return make_examples(inputs, rows, targets, label_space=task.label_space, stored=stored)


@methods.register
class ERGNN(ReplayingLearner):
    """Replays stored nodes without their neighbourhoods (Zhou and Cao 2021).

    Nodes are chosen by coverage in the hidden layer (``embedding-coverage``), by distance to the
    mean of their class (``mean-feature``) or by their influence on the model (``influence``). Only
    edges between stored nodes are kept, as in the published runs; mostly there are none.

    Args:
        memory: the sampler and the budget; 100 nodes per class by default.
    """

    name = "er-gnn"

    @classmethod
    def make_memory(cls, **options: Any) -> SubgraphMemory:
        return SubgraphMemory(**{"sampler": EmbeddingCoverageSampler(), **options})


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class SSM(ReplayingLearner):
    """Replays stored nodes with a few neighbours per hop (Zhang et al., ICDM 2022).

    A stored node keeps at most k(1 + k + ... ) nodes of its ego-subnetwork, whatever its degree.

    Args:
        neighbours: k, at least 1; 0 would be ``er-gnn``.
        choice: ``random``, or ``degree`` for neighbours drawn in proportion to their degree.
    """

    name = "ssm"

    neighbours: int = integer(5, least=1)
    choice: Literal["random", "degree"] = choice("degree", ("random", "degree"))

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:

        def rank(entries: Tensor) -> Tensor:
            times = exponential(len(entries), generator=self.generator).to(entries.device)
            if self.choice == "random":
                return times
            return times / graph.degrees[graph.indices[entries].long()].clamp_min(1)

        hops = self.backbone.hops
        return ego_networks(graph, centres, hops=hops, neighbours=self.neighbours, rank=rank)


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class SEM(ReplayingLearner):
    """Replays stored nodes with the neighbours of largest Ricci curvature (Zhang et al. 2023).

    Curvature is large where two nodes share neighbours and small on bridges, so strongly curved
    edges carry most information about a node. It is the augmented Forman curvature, computed from
    degrees and triangles.

    Args:
        neighbours: number of neighbours kept per node and hop, at least 1.
    """

    name = "sem"

    neighbours: int = integer(5, least=1)

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        curvature = forman_curvature(graph)

        def rank(entries: Tensor) -> Tensor:
            return -curvature[entries]

        hops = self.backbone.hops
        return ego_networks(graph, centres, hops=hops, neighbours=self.neighbours, rank=rank)


@methods.register
class FullSubgraph(ReplayingLearner):
    """Replays stored nodes with their complete ego-subnetworks: O(n d^L), for comparison.

    With ``gat``, ``gin``, ``sage`` and the sum of ``gcn``, the replayed input of a node equals its
    training input; the normalised ``gcn`` weighs the outermost nodes by their degrees in the
    stored subgraph.

    """

    name = "full-subgraph"

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        return ego_networks(graph, centres, hops=self.backbone.hops, rank=torch.zeros_like)


class GradientMemoryLearner(RememberingLearner):
    """Projects gradients so that losses on stored nodes do not rise; see ``GEM`` and ``AGEM``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._stored: Examples | None = None
        self._tasks = torch.empty(0, dtype=torch.int64)  # task of every stored node

    def begin_task(self, task: Task) -> int:
        count = super().begin_task(task)
        if self.memory.graph_ is not None:
            inputs = self.backbone.prepare(self.memory.graph_)
            inputs, rows = self.backbone.narrowed(inputs, self.memory.centres_.to(self.device))
            targets = self.memory.labels_.to(self.device)
            self._stored = make_examples(inputs, rows, targets, label_space=task.label_space)
            self._tasks = task.label_space.task_of(targets)
        return count

    def end_task(self, task: Task) -> None:
        self._stored = None
        super().end_task(task)

    def stored_loss(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Return the weighted mean loss of some stored nodes.  [rows, classes] -> []

        Weights are scaled for these nodes, since ``Examples`` scales them for all stored nodes.
        """
        assert self._stored is not None
        stored = self._stored
        weights = stored.weights[rows]
        return masked_cross_entropy(
            scores,
            stored.targets[rows],
            weights=weights * (len(weights) / weights.sum()),
            allowed=None if stored.allowed is None else stored.allowed[rows],
        )

    def gradient(self) -> Tensor:
        """Return the current gradient of all parameters as one vector."""
        gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters())
        return torch.cat([gradient.flatten() for gradient in gradients])

    def gradient_of(self, loss: Tensor, *, keep: bool = False) -> Tensor:
        """Return the gradient of a loss as one vector."""
        gradients = torch.autograd.grad(
            loss, self._parameters(), retain_graph=keep, materialize_grads=True
        )
        return torch.cat([gradient.flatten() for gradient in gradients])

    def set_gradient(self, gradient: Tensor) -> None:
        """Write a vector back to the parameters' gradients."""
        parameters = self._parameters()
        parts = gradient.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()

    def _parameters(self) -> list[torch.nn.Parameter]:
        return list(self.named_parameters().values())


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class GEM(GradientMemoryLearner):
    """Projects each gradient so that no earlier task's loss rises (Lopez-Paz and Ranzato 2017).

    The gradient g becomes the nearest g̃ with ⟨g̃, g_τ⟩ ≥ 0 for the gradient g_τ of every earlier
    task's class-balanced mean loss over its own stored nodes. The dual is min_v ½‖Gᵀv + g‖² with
    v ≥ margin, a non-negative least squares problem with one unknown per task, solved by SciPy.

    Args:
        margin: least weight of every earlier task's gradient; above 0 it favours old tasks.
    """

    name = "gem"

    margin: float = number(0.5, least=0.0)

    def adjust_gradients(self) -> None:
        if self._stored is None:
            return
        old, new = self._old_gradients(), self.gradient()
        if bool((old @ new < 0).any()):
            self.set_gradient(project(new, old, margin=self.margin))

    def _old_gradients(self) -> Tensor:
        """Return one gradient for each earlier task, from one pass over all stored nodes."""
        assert self._stored is not None
        scores = self.backbone(self._stored.inputs, self._stored.rows, generator=self._noise)
        of_task = [
            (self._tasks == task).nonzero().flatten() for task in self._tasks.unique().tolist()
        ]
        losses = [self.stored_loss(scores[rows], rows) for rows in of_task]
        return torch.stack([self.gradient_of(loss, keep=True) for loss in losses])

    @property
    def usage(self) -> MemoryUsage:
        space = self.label_space_
        tasks = 0 if space is None else len(space.task_of(self.memory.labels_).unique())
        values = tasks * sum(parameter.numel() for parameter in self._parameters())
        return self.memory.usage + MemoryUsage(gradients=values, bytes=4 * values)


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class AGEM(GradientMemoryLearner):
    """Projects gradients so that the mean loss of earlier tasks does not rise (Chaudhry 2019).

    There is one constraint in all, not one per task: if ⟨g, g_ref⟩ < 0 on a random sample of stored
    nodes, g ← g - (⟨g, g_ref⟩ / ‖g_ref‖²) g_ref.

    Args:
        sample: number of stored nodes drawn at each step.
    """

    name = "a-gem"

    sample: int = integer(256, least=1)

    def adjust_gradients(self) -> None:
        if self._stored is None:
            return
        rows = torch.randperm(len(self._stored), generator=self.generator)[: self.sample]
        rows = rows.to(self.device)
        input_rows = rows if self._stored.rows is None else self._stored.rows[rows]
        scores = self.backbone(self._stored.inputs, input_rows, generator=self._noise)
        reference = self.gradient_of(self.stored_loss(scores, rows))
        gradient = self.gradient()
        harm = torch.dot(gradient, reference)
        if harm < 0:
            self.set_gradient(gradient - harm / torch.dot(reference, reference) * reference)


def project(gradient: Tensor, old: Tensor, *, margin: float = 0.0) -> Tensor:
    """Return g + Gᵀv for the v ≥ margin that makes it shortest: then G (g + Gᵀv) ≥ 0.

    With u = v - margin it is argmin_{u≥0} ½ uᵀ P u + qᵀ u for P = G Gᵀ and q in the range of P, and
    with P = R², R symmetric, min ‖R u + R^-1 q‖; directions in which P vanishes (parallel or empty
    gradients) have no effect and are left out.

    gradient: [p]; old: G [tasks, p]; -> [p]

    >>> project(torch.tensor([1., -1.]), torch.tensor([[0., 1.]]))
    tensor([1., 0.])
    """
    products = (old @ old.t()).double().cpu().numpy()
    slopes = (old @ gradient).double().cpu().numpy() + margin * products.sum(axis=1)
    eigenvalues, eigenvectors = np.linalg.eigh(products)
    is_nonzero = eigenvalues > 1e-10 * max(eigenvalues.max(), 1e-300)
    roots = np.sqrt(eigenvalues[is_nonzero])
    directions = eigenvectors[:, is_nonzero].T
    weights = np.full(len(slopes), margin)
    if is_nonzero.any():
        targets = -(directions @ slopes) / roots
        weights += scipy.optimize.nnls(roots[:, None] * directions, targets)[0]
    return gradient + torch.from_numpy(weights).to(gradient) @ old
