"""The interface of backbones, which map the nodes of a graph to class scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from evergraph.core.component import Part, Resolver
from evergraph.core.resources import Resources
from evergraph.graphs import Graph


@dataclass(frozen=True)
class Recipe:
    """Default training settings of a backbone; see ``Trainer``."""

    epochs: int
    lr: float
    weight_decay: float
    batch_size: int | None
    momentum: Literal["carried", "fresh"] = "carried"
    schedule: Literal["constant", "cosine"] = "constant"
    decay: Literal["coupled", "decoupled"] = "coupled"
    smoothing: float = 0.0
    patience: int = 0
    evaluate_every: int = 1


class Backbone(Part, nn.Module, ABC):
    """A node classifier with hyper-parameters, and with weights once it has seen data.

    ``begin`` creates the weights, ``grow`` adds classes, ``prepare`` computes everything that is
    needed once per graph, and a call returns the scores of some of its nodes.

    Attributes:
        hops: number of hops that a score depends on.
        recipe: default training settings.
        scores_edges: whether ``edge_scores`` is implemented.
        sees_weights: whether edge weights are used.
        networks_trained: their number, if it selects the best of several.
    """

    name: ClassVar[str]
    recipe: ClassVar[Recipe]
    scores_edges: bool = False
    sees_weights: bool = True
    networks_trained: ClassVar[int] = 1

    def __init__(self, *, hops: int) -> None:
        super().__init__()
        self.hops = hops
        self.device = torch.device("cpu")

    @abstractmethod
    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        """Create the weights for features of this width, with no classes yet."""

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether ``begin`` has been called."""

    @abstractmethod
    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        """Widen the output; existing classes keep their weights."""

    @abstractmethod
    def prepare(self, graph: Graph) -> Any:
        """Return the inputs of ``forward`` for a graph, computed once while the graph exists."""

    def asked(self, graph: Graph, nodes: Tensor) -> tuple[Any, Tensor | None]:
        """Return inputs that suffice for the scores of some nodes, and their rows in them.

        None means all rows, in order.
        """
        return self.prepare(graph), nodes.to(self.device)

    @abstractmethod
    def width_of(self, inputs: Any) -> int:
        """Return the width of prepared inputs, as needed by ``begin``."""

    def narrowed(self, inputs: Any, rows: Tensor) -> tuple[Any, Tensor | None]:
        """Return inputs reduced to the nodes that these rows need, and the rows' positions in them.

        None means all rows, in order.
        """
        return inputs, rows

    @abstractmethod
    def forward(
        self, inputs: Any, rows: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return class scores; ``generator`` is needed only in training.  -> [rows, classes]"""

    @abstractmethod
    def hidden_states(self, inputs: Any, rows: Tensor | None = None) -> Tensor:
        """Return the inputs of the last layer.  -> [rows, width]"""

    def step_work(self, rows: int) -> int | None:
        """Return about how many multiplications the scores of this many rows take.

        None if the cost does not depend on the rows, because the whole graph is processed.
        """
        return None

    def edge_scores(self, inputs: Any) -> list[Tensor] | None:
        """Return the trainable score of each edge, layer by layer.  -> [[entries], ...]

        None if the aggregation has no trained parameters.
        """
        return None

    def place(self, device: torch.device, resources: Resources | None = None) -> None:
        """Move weights to a device, and prepare graphs there, within ``resources``."""
        self.device = device
        self.to(device)

    @property
    def embed_seconds(self) -> float:
        """Seconds spent on embeddings that are computed once per graph."""
        return 0.0


backbones = Resolver[Backbone]("backbone")
