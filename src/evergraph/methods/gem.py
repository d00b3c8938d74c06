"""Gradient episodic memory, and its averaged form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.core.component import integer, number
from evergraph.graphs import Graph
from evergraph.memory import EgoNetworks, MemoryUsage, isolated
from evergraph.methods.base import methods
from evergraph.methods.examples import Examples, make_examples
from evergraph.methods.replay import RememberingLearner
from evergraph.nn import masked_cross_entropy
from evergraph.streams import Task


class GradientMemoryLearner(RememberingLearner):
    """Projects gradients so that losses on stored nodes do not rise; see ``GEM`` and ``AGEM``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._stored: Examples | None = None
        self._tasks = torch.empty(0, dtype=torch.int64)  # task of every stored node

    def keep(self, graph: Graph, centres: Tensor) -> EgoNetworks:
        """Return the nodes without neighbours."""
        return isolated(graph, centres)

    def begin_task(self, task: Task) -> int:
        """Prepare the stored nodes of earlier tasks."""
        count = super().begin_task(task)
        if self.memory.graph_ is not None:
            inputs = self.backbone.prepare(self.memory.graph_)
            inputs, rows = self.backbone.narrowed(inputs, self.memory.centres_.to(self.device))
            targets = self.memory.labels_.to(self.device)
            self._stored = make_examples(inputs, rows, targets, label_space=task.label_space)
            self._tasks = task.label_space.task_of(targets)
        return count

    def end_task(self, task: Task) -> None:
        """Store some of the task's nodes."""
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
        found = (torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters())
        return torch.cat([gradient.flatten() for gradient in found])

    def gradient_of(self, loss: Tensor, *, keep: bool = False) -> Tensor:
        """Return the gradient of a loss as one vector."""
        found = torch.autograd.grad(
            loss, self._parameters(), retain_graph=keep, materialize_grads=True
        )
        return torch.cat([gradient.flatten() for gradient in found])

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
        memory: the sampler and the budget; 100 nodes per class drawn uniformly by default.
    """

    name = "gem"

    margin: float = number(0.5, least=0.0)

    def adjust_gradients(self) -> None:
        """Project the gradient if it would raise an earlier task's loss."""
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
        """Size of the memory, and of one gradient per task with stored nodes."""
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
        memory: which nodes are kept, and how many; 100 per class drawn uniformly by default.
    """

    name = "a-gem"

    sample: int = integer(256, least=1)

    def adjust_gradients(self) -> None:
        """Project the gradient if it would raise the loss of the sample."""
        if self._stored is None:
            return
        rows = torch.randperm(len(self._stored), generator=self.generator)[: self.sample]
        rows = rows.to(self.device)
        places = rows if self._stored.rows is None else self._stored.rows[rows]
        scores = self.backbone(self._stored.inputs, places, generator=self._noise)
        reference = self.gradient_of(self.stored_loss(scores, rows))
        gradient = self.gradient()
        harm = torch.dot(gradient, reference)
        if harm < 0:
            self.set_gradient(gradient - harm / torch.dot(reference, reference) * reference)


def project(gradient: Tensor, old: Tensor, *, margin: float = 0.0) -> Tensor:
    """Return g + Gᵀv for the v ≥ margin that makes it shortest: then G (g + Gᵀv) ≥ 0.

    gradient: [p]; old: G [tasks, p]; -> [p]

    >>> project(torch.tensor([1., -1.]), torch.tensor([[0., 1.]]))
    tensor([1., 0.])
    """
    products = (old @ old.t()).double().cpu().numpy()
    slopes = (old @ gradient).double().cpu().numpy()
    weights = margin + _least_squares(products, slopes + margin * products.sum(axis=1))
    return gradient + torch.from_numpy(weights).to(gradient) @ old


def _least_squares(
    products: npt.NDArray[np.float64], slopes: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return argmin_{u≥0} ½ uᵀ P u + qᵀ u for P = G Gᵀ and q in the range of P.

    With P = R², R symmetric, it is min ‖R u + R^-1 q‖; directions in which P vanishes (parallel
    or empty gradients) have no effect and are left out.
    """
    values, vectors = np.linalg.eigh(products)
    kept = values > 1e-10 * max(values.max(), 1e-300)
    roots = np.sqrt(values[kept])
    matrix = roots[:, None] * vectors[:, kept].T
    target = -(vectors[:, kept].T @ slopes) / roots
    solution: npt.NDArray[np.float64] = (
        scipy.optimize.nnls(matrix, target)[0] if kept.any() else 0.0 * slopes
    )
    return solution
