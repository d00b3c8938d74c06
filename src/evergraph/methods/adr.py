"""A trained GNN whose layers are merged in closed form after every task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.ridge import RidgeProblem, balanced_ridge
from evergraph.core.component import Made, number
from evergraph.graphs import Graph
from evergraph.graphs.csr import densify, take_rows
from evergraph.graphs.propagation import propagate
from evergraph.memory import MemoryUsage
from evergraph.methods.analytic import SHARPNESS
from evergraph.methods.base import BackboneLearner, methods
from evergraph.nn import GCN
from evergraph.nn.gcn import GraphConvolution
from evergraph.nn.gnn import Features, GraphInputs
from evergraph.nn.linear import Linear
from evergraph.streams import Task


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class ADR(BackboneLearner):
    """A GNN trained on every task, its layers merged by ridge regression (Song et al. 2026).

    A task is learned by gradient descent, from the current layers and a newly drawn head. The
    trained weights W_t of a hidden layer are then merged with those of earlier tasks,

        W = argmin Σ_s ‖X_s W - X_s W_s‖² + λ ‖W‖²,

    where X_s = Â H are the rows that entered the layer at task s's training nodes (see
    ``LayerSums``). The features of a node thus stay as close to those of its own task as one map
    for all tasks allows. The head is a linear one, solved on the features of the merged GNN:
    class-balanced ridge regression on the sums of all tasks, as in ``analytic``. No node and no
    earlier model is stored.

    The merged layers equal those of all tasks' rows at once, in any order. The head uses features
    as the merged GNN computed them when their task arrived; later merges shift them a little, and
    this shift is the only source of forgetting. The sums take 2 d² bytes for a layer with d inputs,
    so 93 MB for 6,805 features and twice that while solving, and d³ / 3 multiplications per task.

    Args:
        merging: λ as a share of the mean diagonal of Σ_s X_sᵀ X_s.
        regularisation: of the head, see ``balanced_ridge``.
        backbone: ``GCN``.

    Attributes:
        layers_: the sums of every hidden layer.
        statistics_: the sums of the head.

    >>> from evergraph.datasets import load
    >>> from evergraph.streams import GraphStream
    >>> from evergraph.training import Trainer
    >>> draw, trainer = torch.Generator().manual_seed(0), Trainer(epochs=2)
    >>> learner = ADR(backbone=GCN(hidden=4), trainer=trainer, generator=draw)
    >>> for task in GraphStream(load("synthetic", nodes=120, classes=4, features=8)):
    ...     learner.fit_task(task)
    >>> learner.layers_[0].products_.shape  # eight features and the bias, to four hidden units
    torch.Size([9, 4])
    """

    name = "adr"
    carries_moments = False
    needs = GCN, "merges layers that are linear maps: use backbone 'gcn'"
    backbone: Made[GCN] = Made()
    merging: float = number(1e-3, least=0.0)
    regularisation: float = number(1e-2, least=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layers_: list[LayerSums] = []
        self.statistics_ = ClassStatistics(0)

    def begin_task(self, task: Task) -> int:
        """Draw a new head; the solved one is computed again after the task."""
        if self.backbone.begun:
            self._linear_maps[-1].clear()
        self.trainer.restore({})  # Adam's moments belong to the layers before the merge
        return super().begin_task(task)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """Merge the layers, then solve for the head on their outputs at the task's nodes."""
        super().end_task(task)
        inputs, nodes = self.backbone.prepare(task.graph), task.train.to(self.device)
        layer_inputs = self._layer_inputs(inputs, nodes)
        for linear, sums, rows in zip(self._linear_maps, self.layers_, layer_inputs, strict=False):
            sums.add(rows, rows @ linear.joined())
        for linear, sums in zip(self._linear_maps, self.layers_, strict=False):
            linear.set_joined(sums.merged(self.merging))
        *_, features = self._layer_inputs(inputs, nodes)
        labels = task.train_labels.to(self.device)
        self.statistics_.add(features, labels, torch.ones_like(labels, dtype=torch.float32))
        self.statistics_.grow(task.label_space.num_classes)
        head = balanced_ridge(self.statistics_, self.regularisation)
        self._linear_maps[-1].set_joined(SHARPNESS * head.float())

    def _layer_inputs(self, inputs: GraphInputs, nodes: Tensor) -> Iterator[Tensor]:
        """Yield the inputs of each layer's map at some nodes, with a 1 appended for a bias.

        -> [nodes, inputs of the layer]
        """
        adjacency_rows = take_rows(inputs.adjacency.matrix, nodes)  # some rows of Â
        state: Features = inputs.features
        values = inputs.raw
        for layer, linear in zip(self.backbone.convolutions or (), self._linear_maps, strict=True):
            rows = densify(propagate(adjacency_rows, values))
            ones = torch.ones_like(rows[:, :1])  # for the bias
            yield rows if linear.bias is None else torch.cat([rows, ones], 1)
            state = values = torch.relu_(layer(inputs.adjacency, state))

    @property
    def _linear_maps(self) -> list[Linear]:
        """The linear maps of all layers, the head's last."""
        layers = cast("Iterable[GraphConvolution]", self.backbone.convolutions or ())
        return [layer.linear for layer in layers]

    def novelty(self, graph: Graph, nodes: Tensor, *, logits: Tensor | None = None) -> Tensor:
        """Return 1 minus the best score, since scores here estimate probabilities."""
        self._check_learned()
        scores = self.logits(graph, nodes) if logits is None else logits
        return 1 - scores.amax(dim=1) / SHARPNESS

    @property
    def usage(self) -> MemoryUsage:
        return sum((sums.usage for sums in self.layers_), self.statistics_.usage)

    @property
    def parts(self) -> dict[str, Any]:
        layers = {f"layers.{layer}": sums for layer, sums in enumerate(self.layers_)}
        return super().parts | layers | {"statistics": self.statistics_}

    def _make_room(self, dims: int, classes: int) -> None:
        first = not self.backbone.begun
        super()._make_room(dims, classes)
        if first:
            *hidden, head = (len(linear.joined()) for linear in self._linear_maps)
            width, device = self.backbone.hidden, self.device
            self.layers_ = [LayerSums(inputs, width, device=device) for inputs in hidden]
            self.statistics_ = ClassStatistics(head, device=device)


# Rows multiplied at a time.
ROWS_PER_BLOCK = 4096


class LayerSums:
    """Sums G = Σ_t X_tᵀ X_t and C = Σ_t X_tᵀ Z_t, where Z_t = X_t W_t are the outputs of task t.

    The map nearest to those of all tasks, each on its own inputs, is the ridge solution

        W = argmin Σ_t ‖X_t W - Z_t‖² + λ ‖W‖² = (G + λ I)⁻¹ C,

    which needs no input again (as in RegMean, Jin et al. 2023).

    Args:
        inputs, outputs: widths of X_t and Z_t.

    >>> sums = LayerSums(2, 1)
    >>> sums.add(torch.tensor([[1., 0.]]), torch.tensor([[3.]]))  # one task, along the first axis
    >>> sums.add(torch.tensor([[0., 2.]]), torch.tensor([[8.]]))  # another, along the second
    >>> sums.merged(0.0)
    tensor([[3.],
            [4.]])
    """

    def __init__(self, inputs: int, outputs: int, *, device: torch.device | str = "cpu") -> None:
        self.gram_ = ClassStatistics(inputs, device=device)
        self.products_ = torch.zeros(inputs, outputs, dtype=torch.float64, device=device)

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Add a task's inputs and outputs.  [n, inputs], [n, outputs]"""
        for rows, output_rows in zip(
            inputs.split(ROWS_PER_BLOCK), outputs.split(ROWS_PER_BLOCK), strict=True
        ):
            self.gram_.add(rows, torch.zeros_like(rows[:, 0]).long(), torch.ones_like(rows[:, 0]))
            self.products_ += (rows.t() @ output_rows).double()

    def merged(self, regularisation: float) -> Tensor:
        """Return W, λ = ``regularisation`` x the mean of G's diagonal.  -> [inputs, outputs]"""
        problem = RidgeProblem.plain(self.gram_.gram_, self.products_)
        return problem.solution(regularisation).weights.float()

    @property
    def usage(self) -> MemoryUsage:
        """Number of values in G and C, and their bytes."""
        products = self.products_
        return self.gram_.usage + MemoryUsage(statistics=products.numel(), bytes=products.nbytes)

    def state(self) -> dict[str, Tensor]:
        """Return the sums by name."""
        return self.gram_.state() | {"products": self.products_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.gram_.restore(state)
        self.products_ = state["products"].to(self.products_.device)
