"""What a learner is, to the trainer that drives it and to the evaluator that tests it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph
from evergraph.memory import MemoryUsage
from evergraph.streams import Task
from evergraph.training.batches import Batch
from evergraph.training.trainer import Trainer


class Learner(ABC):
    """Learns task after task and classifies nodes of every task so far.

    Methods are named for when they happen: ``begin_task``, then ``loss`` and ``adjust_gradients``
    at every step, then ``end_task``; ``logits`` at any time after. A method with a closed form
    overrides ``fit_task`` instead of giving a loss.

    Args:
        trainer: runs the epochs.
        generator: the source of all of the learner's randomness.

    Attributes:
        cumulative: whether a task shows the training nodes of earlier tasks too.
        label_space_: the classes learned so far.
    """

    name: ClassVar[str]
    cumulative: ClassVar[bool] = False

    def __init__(self, *, trainer: Trainer | None = None, generator: torch.Generator) -> None:
        self.trainer = trainer if trainer is not None else Trainer()
        self.generator = generator
        self.label_space_: LabelSpace | None = None

    @property
    def device(self) -> torch.device:
        """Where the learner computes."""
        return self.trainer.device

    def fit_task(self, task: Task) -> None:
        """Learn one task."""
        self.trainer.fit(self, task)

    @abstractmethod
    def begin_task(self, task: Task) -> int:
        """Prepare for a task; return how many training examples an epoch has."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Return the loss over some of the examples, to be minimised."""

    def adjust_gradients(self) -> None:  # noqa: B027  (most methods leave gradients alone)
        """Change gradients after they are computed and before the step."""

    def end_task(self, task: Task) -> None:  # noqa: B027  (most methods keep nothing)
        """Keep what later tasks will need."""

    @abstractmethod
    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the scores of all classes learned so far.  -> [nodes, classes]"""

    @abstractmethod
    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the trainable parts by name."""

    def predict(self, graph: Graph, nodes: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Return the most likely class of each node, numbered in order of arrival.  -> [nodes]

        tasks: which task each node belongs to; needed in task-IL only.
        """
        if self.label_space_ is None:
            raise ConfigurationError("the learner has learned no task yet: call fit_task first")
        if tasks is None:
            if self.label_space_.setting == "task-il":
                raise ConfigurationError(
                    "tasks must be given in task-il: which task is each node of?"
                )
            tasks = torch.zeros(len(nodes), dtype=torch.int64)
        scores = self.logits(graph, nodes)
        allowed = self.label_space_.allowed(tasks.to(scores.device))
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return scores.argmax(dim=1).cpu()

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Return every trainable parameter by name."""
        return {
            f"{part}.{name}": parameter
            for part, module in self.modules()
            for name, parameter in module.named_parameters()
        }

    @property
    def usage(self) -> MemoryUsage:
        """What is kept between tasks besides the model itself."""
        return MemoryUsage()

    @property
    def coverage_ratio(self) -> float | None:
        """R_c of what is kept, where the method keeps nodes."""
        return None

    @property
    def embed_seconds(self) -> float:
        """Seconds spent computing embeddings so far."""
        return 0.0

    def state(self) -> dict[str, Tensor]:
        """Return all that later tasks depend on, as named CPU tensors."""
        state = {f"model.{name}": p.detach().cpu() for name, p in self.named_parameters().items()}
        state |= {f"adam.{name}": value for name, value in self.trainer.state().items()}
        state["generator"] = self.generator.get_state()
        return state

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        """Take back what ``state`` returned, at the point where it was taken."""
        self.label_space_ = label_space
        self.trainer.restore(part_of(state, "adam."))
        self.generator.set_state(state["generator"])


def part_of(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries under a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
