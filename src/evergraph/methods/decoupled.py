"""PDGNN: a parameter-free f_topo and a trainable f_out, whatever keeps it from forgetting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph
from evergraph.methods.examples import Examples, make_examples
from evergraph.nn import MLP, check_head, masked_cross_entropy
from evergraph.streams import Task
from evergraph.topology import SGC, EmbeddingCache, TopologyEncoder
from evergraph.topology.cached import Scaling
from evergraph.training import Batch, Learner, Trainer
from evergraph.training.learner import part_of

# Rows classified at a time, so that hidden layers of a large test set fit in memory.
PREDICT_ROWS = 1 << 16


class DecoupledLearner(Learner):
    """PDGNN trained on the current task's embeddings, and nothing else.

    Args:
        topology: f_topo; ``SGC(hops=2)``, the paper's, unless given.
        hidden, bias, dropout: of f_out, see ``MLP``.
        scaling: ``unit`` divides embeddings by their length, ``none`` leaves them.
        trainer, generator: see ``Learner``.

    Attributes:
        head_: f_out, once the first task has come.
    """

    def __init__(
        self,
        *,
        topology: TopologyEncoder | None = None,
        hidden: Sequence[int] = (512,),
        bias: bool = True,
        dropout: float = 0.5,
        scaling: Scaling = "unit",
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(trainer=trainer, generator=generator)
        self.topology = topology if topology is not None else SGC()
        check_head(tuple(hidden), dropout)
        self.hidden = tuple(hidden)
        self.bias = bias
        self.dropout = dropout
        self.scaling: Scaling = scaling
        self.embeddings = EmbeddingCache(self.topology, scaling=scaling, device=self.device)
        self.head_: MLP | None = None
        self._examples: Examples | None = None
        self._noise = generator  # dropout's; on a GPU a generator of that device

    def begin_task(self, task: Task) -> int:
        """Embed the task's graph, once, and make room for its classes."""
        self.label_space_ = task.label_space
        embeddings = self.embeddings(task.graph)
        self._make_head(embeddings.shape[1], task.label_space.num_classes)
        self._examples = self.examples(task, embeddings)
        return len(self._examples)

    def examples(self, task: Task, embeddings: Tensor) -> Examples:
        """Return what to train on; here the task's own training nodes."""
        current, targets = self._current(task, embeddings)
        return make_examples(current, targets, label_space=task.label_space)

    def _current(self, task: Task, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        return embeddings[task.train.to(self.device)], task.train_labels.to(self.device)

    def loss(self, batch: Batch) -> Tensor:
        """Return the weighted cross-entropy over some of the examples."""
        assert self.head_ is not None
        assert self._examples is not None
        rows = self._examples
        return masked_cross_entropy(
            self.head_(rows.embeddings[batch], generator=self._noise),
            rows.targets[batch],
            weights=rows.weights[batch],
            allowed=None if rows.allowed is None else rows.allowed[batch],
        )

    def end_task(self, task: Task) -> None:
        """Let the examples go."""
        self._examples = None

    @torch.no_grad()
    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the scores of all classes learned so far.  -> [nodes, classes]"""
        assert self.head_ is not None
        embeddings = self.embeddings(graph)
        self.head_.eval()
        parts = [self.head_(embeddings[rows.to(self.device)]) for rows in nodes.split(PREDICT_ROWS)]
        self.head_.train()
        return torch.cat(parts)

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the head."""
        if self.head_ is not None:
            yield "head", self.head_

    def _make_head(self, dims: int, classes: int) -> None:
        if dims == 0:
            raise ConfigurationError(
                "the graph has no features to learn from: give its nodes some, or use it for "
                "structure only (evergraph info)"
            )
        if self.head_ is None:
            self.head_ = MLP(
                dims,
                hidden=self.hidden,
                bias=self.bias,
                dropout=self.dropout,
                generator=self.generator,
            ).to(self.device)
            self._noise = self._noise_generator()
        self.head_.grow(classes, generator=self.generator)

    def _noise_generator(self) -> torch.Generator:
        """Return dropout's generator, seeded from the learner's where the device needs its own."""
        if self.device.type == "cpu":
            return self.generator
        seed = int(torch.randint(2**62, (1,), generator=self.generator))
        return torch.Generator(self.device).manual_seed(seed)

    @property
    def embed_seconds(self) -> float:
        """Seconds spent computing embeddings so far."""
        return self.embeddings.seconds

    def state(self) -> dict[str, Tensor]:
        """Return all that later tasks depend on, as named CPU tensors."""
        state = super().state()
        if self._noise is not self.generator:
            state["noise"] = self._noise.get_state()
        return state

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        """Take back what ``state`` returned, at the point where it was taken."""
        weights = part_of(state, "model.head.")
        first = weights["hidden.0.weight" if self.hidden else "out.weight"]
        self._make_head(first.shape[1], label_space.num_classes)
        assert self.head_ is not None
        self.head_.load_state_dict(weights)
        super().restore(state, label_space)
        if "noise" in state:
            self._noise.set_state(state["noise"])
