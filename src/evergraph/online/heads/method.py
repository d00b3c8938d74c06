"""Any method of the library behind an online learner, refitted whenever something changes."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.label_space import LabelSpace
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.methods import BackboneLearner, methods
from evergraph.nn import Backbone, backbones
from evergraph.online.heads.base import OnlineHead, Scorer, heads
from evergraph.online.heads.whole_task import task_of
from evergraph.online.pieces import Packing
from evergraph.topology import TopologyEncoder
from evergraph.training import Trainer
from evergraph.training.learner import part_of

logger = logging.getLogger(__name__)

HELD_OUT = 10  # every tenth labelled node is for validation, where a method has use for it


@heads.register
class MethodHead(OnlineHead):
    """A method's learner, fitted from scratch on the whole graph after every delta with a change.

    Slow: a delta costs what training on everything costs. It is there to compare with, and for
    graphs that change seldom. Forgetting is exact, since nothing of the last fit is kept.

    Args:
        method: name of the method.
        backbone: name of its backbone; the method's own unless given.
        epochs: of training; the backbone's recipe unless given.
    """

    name = "method"
    exact_forgetting = True
    needs_graph = True

    def __init__(
        self, *, method: str = "joint", backbone: str | None = None, epochs: int | None = None
    ) -> None:
        methods.resolve(method)
        if backbone is not None:
            backbones.resolve(backbone)
        if epochs is not None:
            check_integer("epochs", epochs, least=1)
        self.method = method
        self.backbone = backbone
        self.epochs = epochs
        self.labels_: dict[int, int] = {}  # of learned nodes, by position
        self.seed_ = 0
        self._classes = 0
        self._settled = True
        self._learner: BackboneLearner | None = None
        self._seen: tuple[Graph, Tensor] | None = None
        self._table = torch.zeros(0, 0)

    def begin(
        self,
        dims: int,
        *,
        topology: TopologyEncoder,
        scaling: str,
        generator: torch.Generator,
        related: bool = False,
    ) -> None:
        """Draw the seed that every fit begins with."""
        logger.warning(
            "head 'method' fits %s on the whole graph after every delta: use head 'analytic' "
            "where deltas come often", self.method,
        )  # fmt: skip
        self.seed_ = int(torch.randint(2**62, (1,), generator=generator))
        self._topology, self._scaling = topology, scaling

    @property
    def num_classes(self) -> int:
        """How many classes there is room for."""
        return self._classes

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        self._classes = max(self._classes, classes)

    def learn(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Write classes down."""
        self.labels_ |= dict(zip(ids.tolist(), labels.tolist(), strict=True))
        self._settled &= not len(ids)

    def move(self, ids: Tensor, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Note that the graph has changed around learned nodes."""
        self._settled &= not len(ids)

    def forget(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Strike nodes out."""
        for position in ids.tolist():
            del self.labels_[position]
        self._settled &= not len(ids)

    def see(self, graph: Graph, positions: Tensor) -> None:
        """Score every node of the graph with the last fit."""
        self._seen = graph.without_labels(), positions
        self._score()

    def _score(self) -> None:
        if self._learner is None or self._seen is None:
            return
        graph, positions = self._seen
        if not len(positions):
            return
        scores = self._learner.logits(graph, torch.arange(graph.num_nodes)).cpu().float()
        self._table = torch.zeros(int(positions.max()) + 1, scores.shape[1])
        self._table[positions] = scores

    def settle(self) -> None:
        """Fit anew."""
        if self._settled:
            return
        self._settled = True
        self._learner, self._table = None, torch.zeros(0, 0)
        if self.labels_:
            assert self._seen is not None
            graph, positions = self._seen
            known = torch.tensor(sorted(self.labels_))
            self._learner = self._made()
            task = task_of(
                graph,
                positions,
                nodes=torch.searchsorted(positions, known),
                labels=torch.tensor([self.labels_[position] for position in known.tolist()]),
                classes=self._classes,
                held_out=HELD_OUT,
            )
            self._learner.fit_task(task)
            self._score()

    def _made(self) -> BackboneLearner:
        backbone = self._made_backbone()
        recipe = vars(backbone.recipe) | ({"epochs": self.epochs} if self.epochs else {})
        trainer = Trainer(**recipe)
        generator = seeded(self.seed_, "fit")
        return methods.make(self.method, backbone=backbone, trainer=trainer, generator=generator)

    def _made_backbone(self) -> Backbone:
        name = self.backbone or methods.resolve(self.method).default_backbone
        given = {"topology": self._topology, "scaling": self._scaling}
        takes = backbones.parameters(name)
        return backbones.make(name, **{key: v for key, v in given.items() if key in takes})

    def scorer(self) -> TableScorer:
        """Return the scores of all nodes seen; the table is never written to, only replaced."""
        return TableScorer(self._table)

    def bytes_for(self, *, nodes: int, counted: int, classes: int, new: int) -> int:
        """Return what a score of every node and class takes, and fitting about as much again."""
        known = 0 if self._seen is None else len(self._seen[1])
        return 4 * 6 * (known + counted) * classes

    def state(self) -> dict[str, Tensor]:
        """Return what was learned, the last fit and its scores."""
        kept = {
            "ids": torch.tensor(list(self.labels_), dtype=torch.int64),
            "labels": torch.tensor(list(self.labels_.values()), dtype=torch.int64),
            "classes": torch.tensor(self._classes),
            "seed": torch.tensor(self.seed_),
            "table": self._table,
        }
        if self._learner is not None and self._learner.label_space_ is not None:
            kept["learned"] = torch.tensor(self._learner.label_space_.num_classes)
            kept |= {f"fit.{name}": value for name, value in self._learner.state().items()}
        return kept

    def packed(self, state: dict[str, Tensor], packing: Packing) -> dict[str, Tensor]:
        """Return the same once nodes have other positions."""
        ids, table = packing.places[state["ids"]], packing.padded(state["table"])
        return state | {"ids": ids, "table": table if len(state["table"]) else state["table"]}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.labels_ = dict(zip(state["ids"].tolist(), state["labels"].tolist(), strict=True))
        self._classes, self.seed_ = int(state["classes"]), int(state["seed"])
        self._table = state["table"]
        self._learner = None
        if "learned" in state:
            self._learner = self._made()
            space = LabelSpace("class-il", (int(state["learned"]),))
            self._learner.restore(part_of(state, "fit."), space)


@dataclass(frozen=True, eq=False)
class TableScorer(Scorer):
    """Scores computed before."""

    quick = True

    table: Tensor

    def __call__(self, ids: Tensor, vectors: Tensor) -> Tensor:
        """Return the scores of nodes by their positions.  int64 [n] -> [n, classes]"""
        return self.table[ids]
