"""What a backbone is: from the nodes of a graph to class scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from evergraph.core.component import Part
from evergraph.core.resolver import Resolver
from evergraph.core.resources import Resources
from evergraph.graphs import Graph


@dataclass(frozen=True)
class Recipe:
    """How a backbone is trained unless the user says otherwise; see ``Trainer``."""

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
    """A classifier of nodes that is made of hyper-parameters, and of weights once data has come.

    ``begin`` makes the weights, ``grow`` adds classes, ``prepare`` does what has to be done once a
    graph, and a call gives the scores of some of its nodes.

    Attributes:
        hops: how far a score looks.
        recipe: how it is trained by default.
        scores_edges: whether ``edge_scores`` has anything to say.
        sees_weights: whether it looks at the weights of edges.
        rivals: how many networks are trained where it stands for the best of several.
    """

    name: ClassVar[str]
    recipe: ClassVar[Recipe]
    scores_edges: bool = False
    sees_weights: bool = True
    rivals: ClassVar[int] = 1

    def __init__(self, *, hops: int) -> None:
        super().__init__()
        self.hops = hops
        self.device = torch.device("cpu")

    @abstractmethod
    def begin(self, dims: int, *, generator: torch.Generator) -> None:
        """Make the weights for features of a width, with no classes yet."""

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether ``begin`` has been called."""

    @abstractmethod
    def grow(self, classes: int, *, generator: torch.Generator) -> None:
        """Widen the output; what was learned for the other classes stays as it is."""

    @abstractmethod
    def prepare(self, graph: Graph) -> Any:
        """Return what ``forward`` needs of a graph, computed once while the graph lives."""

    @abstractmethod
    def width_of(self, inputs: Any) -> int:
        """Return how wide the features of prepared inputs are: what ``begin`` has to be told."""

    def narrowed(self, inputs: Any, rows: Tensor) -> tuple[Any, Tensor | None]:
        """Return inputs that hold no more than these rows need, and where the rows are in them.

        None means all, in order.
        """
        return inputs, rows

    @abstractmethod
    def forward(
        self, inputs: Any, rows: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return class scores; ``generator`` is needed in training only.  -> [rows, classes]"""

    @abstractmethod
    def hidden_states(self, inputs: Any, rows: Tensor | None = None) -> Tensor:
        """Return what enters the last layer.  -> [rows, width]"""

    def step_work(self, rows: int) -> int | None:
        """Return about how many multiplications scores of so many rows take.

        None where it is not for the rows to say, because a whole graph is gone over.
        """
        return None

    def edge_scores(self, inputs: Any) -> list[Tensor] | None:
        """Return how much each edge counts, layer by layer, where trainable.  -> [[entries], ...]

        None where aggregation has nothing to train.
        """
        return None

    def place(self, device: torch.device, resources: Resources | None = None) -> None:
        """Keep weights, and prepare graphs, on a device, within some memory."""
        self.device = device
        self.to(device)

    @property
    def embed_seconds(self) -> float:
        """Seconds spent on embeddings that are computed once a graph."""
        return 0.0


backbones = Resolver[Backbone]("backbone")
