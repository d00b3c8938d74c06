"""Online form of TEM: an MLP trained on new embeddings together with stored ones."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from evergraph.core.checks import check_integer, check_number
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import UNLABELLED, Graph
from evergraph.memory import EmbeddingMemory
from evergraph.memory.samplers import UniformSampler
from evergraph.methods import TEM
from evergraph.nn import MLP, PDGNN
from evergraph.online.heads.base import Ids, OnlineHead, Scorer, heads
from evergraph.online.state_arrays import Packing
from evergraph.streams import Task
from evergraph.streams.task import Lease
from evergraph.topology import Identity, TopologyEncoder
from evergraph.topology.rowwise import Matrix, blockwise
from evergraph.training import Trainer
from evergraph.training.learner import part_of

BATCH = 512  # nodes in a training batch


@heads.register
class ReplayHead(OnlineHead):
    """Method ``tem`` with a task for every delta: trains on new embeddings and stored ones.

    A stored embedding is updated when its node moves and dropped when its node is forgotten. What
    the MLP has learned from it stays, so forgetting is not exact.

    Args:
        width: of the MLP's hidden layer.
        budget: embeddings stored for every class, drawn uniformly from all that came.
        epochs: passes over new and stored embeddings for a delta with labels.
        lr: learning rate.

    >>> head = ReplayHead(width=16, epochs=20)
    >>> head.begin(2, topology=Identity(), generator=torch.Generator())
    >>> ids, vectors = torch.tensor([0, 1]), torch.eye(2)
    >>> head.grow(2)
    >>> head.learn(ids, vectors, torch.tensor([1, 0]))
    >>> head.settle()
    >>> head.scores(ids, vectors).argmax(1)
    tensor([1, 0])
    """

    name = "replay"
    drops_classes = True

    def __init__(
        self, *, width: int = 256, budget: int = 200, epochs: int = 4, lr: float = 0.005
    ) -> None:
        check_integer("width", width, least=1)
        check_integer("budget", budget, least=1)
        check_integer("epochs", epochs, least=1)
        check_number("lr", lr, least=0.0)
        self.width, self.budget, self.epochs, self.lr = width, budget, epochs, lr
        self._classes = 0
        self._tem: TEM | None = None
        self._empty(0)

    def _empty(self, dims: int) -> None:  # the nodes to learn
        self._ids = self._labels = torch.empty(0, dtype=torch.int64)
        self._vectors = torch.empty(0, dims)

    def begin(
        self, dims: int, *, topology: TopologyEncoder, generator: Generator, related: bool = False
    ) -> None:
        """Create TEM, for which vectors are nodes without neighbours."""
        self._tem = TEM(
            memory=EmbeddingMemory(budget=self.budget, sampler=UniformSampler()),
            backbone=PDGNN(topology=Identity(), hidden=(self.width,), scaling="none"),
            trainer=Trainer(epochs=self.epochs, lr=self.lr, device="cpu"),
            generator=generator,
        )
        self._empty(dims)

    @property
    def tem(self) -> TEM:
        """The learner inside."""
        assert self._tem is not None, "begin comes first"
        return self._tem

    @property
    def num_classes(self) -> int:
        """How many classes there is room for."""
        return self._classes

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        self._classes = max(self._classes, classes)

    def learn(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Queue nodes to be learned by ``settle``."""
        queued = (self._ids, ids), (self._vectors, vectors), (self._labels, labels)
        self._ids, self._vectors, self._labels = map(torch.cat, queued)

    def move(self, ids: Tensor, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Replace vectors that are stored or queued."""
        self._vectors = _replaced(self._vectors, self._ids, ids, after)
        memory = self.tem.memory
        memory.embeddings_ = _replaced(memory.embeddings_, memory.nodes_, ids, after)

    def forget(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Drop nodes that are stored or queued."""
        kept = ~torch.isin(self._ids, ids)
        self._ids, self._vectors = self._ids[kept], self._vectors[kept]
        self._labels = self._labels[kept]
        memory = self.tem.memory
        kept = ~torch.isin(memory.nodes_, ids)
        for name in ("embeddings_", "labels_", "nodes_", "ranks_"):
            setattr(memory, name, getattr(memory, name)[kept])

    def settle(self) -> None:
        """Train on queued and stored nodes, then store some of the queued ones."""
        if not len(self._ids):
            return
        order = self._ids.argsort()
        nodes, labels, nobody = torch.arange(len(order)), self._labels[order], self._ids[:0]
        sizes = {label: count for label, count in enumerate(labels.bincount().tolist()) if count}
        # A graph without edges whose features are the vectors, and all of whose nodes are learned.
        graph = Graph.from_edges(
            torch.empty(2, 0, dtype=torch.int64),
            features=self._vectors[order],
            labels=torch.full((len(order),), UNLABELLED),
            undirected=True,
        )
        task = Task(
            index=0,
            label_space=LabelSpace("class-il", (self._classes,)),
            ids=self._ids[order],
            train=nodes,
            train_labels=labels,
            validation=nobody,
            validation_labels=nobody,
            own=nodes,
            class_sizes=sizes,
            met_sizes=sizes,
            known_sizes=sizes,
            lease=Lease(graph),
        )
        self.tem.fit_task(task)
        self._empty(self._vectors.shape[1])

    def scorer(self) -> ReplayScorer:
        """Return a copy of the MLP."""
        backbone = self.tem.backbone
        assert isinstance(backbone, PDGNN)
        return ReplayScorer(deepcopy(backbone.head).eval() if backbone.head else None)

    def bytes_for(self, *, nodes: int, counted: int, classes: int, new: int) -> int:
        """Return the bytes of the MLP with moments, gradients and copies, and of a batch."""
        dims = self._vectors.shape[1] or self.width
        stored = min(nodes, self.budget * classes) * dims
        return 4 * (8 * self.width * classes + 4 * stored + 6 * BATCH * classes)

    @property
    def nbytes(self) -> int:
        """How many bytes the memory holds."""
        return self.tem.usage.bytes

    def state(self) -> dict[str, Tensor]:
        """Return the MLP, Adam's moments, the memory and the generator."""
        kept = {"classes": torch.tensor(self._classes), "generator": self.tem.generator.get_state()}
        if self.tem.backbone.begun:
            # How many classes the MLP has, which may be fewer than there is room for.
            space = self.tem.label_space_
            kept["learned"] = torch.tensor(0 if space is None else space.num_classes)
            kept |= {f"tem.{name}": value for name, value in self.tem.state().items()}
        return kept

    def packed(
        self, state: dict[str, Tensor], nodes: Packing, classes: Packing
    ) -> dict[str, Tensor]:
        """Return a state with stored nodes and classes renumbered."""
        found = dict(state)
        for name, value in state.items():
            if name in ("tem.memory.nodes", "tem.memory.coverage.coverers"):
                found[name] = nodes.places[value]
            elif name == "tem.memory.labels":
                found[name] = classes.places[value]
            elif name in ("classes", "learned"):
                found[name] = (classes.living < value).sum()
            elif ".head.out." in name and value.dim():  # also Adam's moments
                found[name] = value[classes.living[classes.living < len(value)]]
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self._classes = int(state["classes"])
        self.tem.generator.set_state(state["generator"])
        if "learned" in state:
            space = LabelSpace("class-il", (int(state["learned"]),))
            self.tem.restore(part_of(state, "tem."), space)


@dataclass(frozen=True, eq=False)
class ReplayScorer(Scorer):
    """Scores of a copy of the MLP."""

    head: MLP | None

    @torch.no_grad()
    def __call__(self, ids: Ids, vectors: Matrix) -> Matrix:
        """Return the scores.  [n, dims] -> [n, classes]"""
        if self.head is None:
            return np.zeros((len(vectors), 0), np.float32)
        return blockwise(self.head, torch.from_numpy(vectors), len(self.head.out.weight)).numpy()


def _replaced(vectors: Tensor, nodes: Tensor, ids: Tensor, after: Tensor) -> Tensor:
    """Return the vectors of nodes with those of some ids replaced.  [nodes, dims]"""
    if not len(ids) or not len(nodes):
        return vectors
    order = ids.argsort()
    where = torch.searchsorted(ids[order], nodes).clamp_max(len(ids) - 1)
    found = ids[order][where] == nodes
    vectors = vectors.clone()
    vectors[found] = after[order[where[found]]]
    return vectors
