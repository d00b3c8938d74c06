"""The interface of learners, for the trainer and the evaluator, and how one is saved."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evergraph.core.component import SURROUNDINGS, Made, Part
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.label_space import LabelSpace, Predictions, predicted_values
from evergraph.core.packages import own_version
from evergraph.core.resources import Resources
from evergraph.core.safe_files import results_written, written_aside
from evergraph.core.targets import likeliest, target_of
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.pyg import read_attributes
from evergraph.memory import MemoryUsage
from evergraph.nn.losses import class_balanced, masked_losses
from evergraph.streams import Task
from evergraph.training.trainer import Batch, Trainer

if TYPE_CHECKING:
    from torch_geometric.data import Data

# A saved learner is a safetensors file. The metadata ``KEY`` hold one JSON object: ``format``;
# ``evergraph``, the version that wrote it; ``method``, its name and parameters, parts among them as
# nested tables; ``label_space``: setting, classes per task, the dataset's own labels, kind and
# names of targets; and ``undirected``, whether every edge of the training graphs went both ways.
FORMAT = 2
KEY = "evergraph"


@dataclass(kw_only=True, eq=False, repr=False)
class Learner(Part, ABC):
    """Learns task after task and classifies nodes of every task so far.

    Methods are named for when they are called: ``begin_task``, then ``loss`` and
    ``adjust_gradients`` at every step, then ``end_task``; ``logits`` at any time after. A method
    with a closed form overrides ``fit_task`` instead of defining a loss.

    Args:
        trainer: runs the epochs.
        generator: the source of all of the learner's randomness.

    Attributes:
        cumulative: whether a task includes the training nodes of earlier tasks.
        kinds: the supported kinds of targets: one ``class``, several ``labels``, ``numbers``.
        label_space_: the classes learned so far.
        undirected_: whether every edge of the training graphs went both ways; a ``Data`` object to
            predict is then read in the same way.
    """

    name: ClassVar[str]
    cumulative: ClassVar[bool] = False
    kinds: ClassVar[tuple[str, ...]] = ("class",)

    trainer: Made[Trainer] = Made(default=Trainer)
    generator: torch.Generator

    def __post_init__(self) -> None:
        super().__post_init__()
        self.label_space_: LabelSpace | None = None
        self.undirected_ = False

    @property
    def label_space_(self) -> LabelSpace | None:
        """The classes learned so far; None before the first task."""
        return self._label_space

    @label_space_.setter
    def label_space_(self, label_space: LabelSpace | None) -> None:
        # Called when a task is learned and when the learner is restored.
        if label_space is not None:
            self.check_kind(label_space.kind)
        self._label_space = label_space

    @classmethod
    def check_kind(cls, kind: str) -> None:
        """Raise unless the method supports this kind of targets."""
        if kind not in cls.kinds:
            raise ConfigurationError(
                f"method {cls.name!r} learns one class per node, and the nodes here have "
                f"{target_of(kind).described}: use method 'analytic'"
            )

    @property
    def device(self) -> torch.device:
        """Device on which the learner computes."""
        device: torch.device = self.trainer.device
        return device

    @property
    def resources(self) -> Resources:
        """Memory and workers available to the learner."""
        return self.trainer.resources

    @property
    def draws_from(self) -> Sequence[torch.Generator] | None:
        """The generators of a training step, if it can be recorded and replayed on a GPU.

        None if it cannot, because it depends on values that are read on the CPU. A method that
        returns generators guarantees a loss that uses tensors only.
        """
        return None

    @property
    def sight(self) -> int | None:
        """Number of hops around its nodes that a task's graph is read; None for all of it.

        Small batches of a task come with this part of the graph only, see ``GraphStream.open``.
        """
        return None

    def fit_task(self, task: Task) -> None:
        """Learn one task."""
        self.trainer.fit(self, task)

    @abstractmethod
    def begin_task(self, task: Task) -> int:
        """Prepare for a task; return the number of training examples per epoch."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Return the loss over some of the examples, to be minimised."""

    def step_work(self, examples: int) -> int | None:
        """Return about how many multiplications a step on this many examples takes.

        Small steps use few threads. None, if it is unknown, uses all of them.
        """
        return None

    def adjust_gradients(self) -> None:
        """Change gradients after they are computed and before the step."""

    def end_task(self, task: Task) -> None:
        """Store the data that later tasks will need."""

    @abstractmethod
    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the scores of all classes learned so far.  -> [nodes, classes]"""

    @abstractmethod
    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the trainable parts by name."""

    @property
    def classes(self) -> list[int] | list[str]:
        """The dataset's label of every class learned so far, in order of arrival."""
        return self._check_learned().called

    def predict(
        self, graph: Graph | Data, nodes: Tensor | None = None, tasks: Tensor | None = None
    ) -> Tensor | NDArray[np.str_]:
        """Return the dataset's label of each node's most likely class.  -> [nodes]

        A tensor of integers, or a NumPy array of strings if the dataset's labels were strings. For
        multi-label targets, 1 for each label with a probability above 0.5; for regression, the
        values.  -> [nodes, targets]

        graph: also as PyG's ``Data``, without ``y``. nodes: all nodes by default. tasks: the task
        of each node; needed in task-IL only.
        """
        scores = self._allowed_scores(graph, nodes, tasks)
        target = self._check_learned().target
        predicted: Tensor = target.decide(scores).cpu()
        if not target.is_class:
            return predicted.long() if target.is_named else predicted
        labels = self.classes
        if isinstance(labels[0], str):
            names: NDArray[np.str_] = np.array(labels)[predicted.numpy()]
            return names
        return torch.tensor(labels)[predicted]

    def predict_proba(
        self, graph: Graph | Data, nodes: Tensor | None = None, tasks: Tensor | None = None
    ) -> Tensor:
        """Return the probability of each class, in the order of ``classes``.  -> [nodes, classes]

        The softmax of the scores over the allowed classes, 0 elsewhere; for multi-label targets,
        the probability of each label. Arguments as in ``predict``.
        """
        target = self._check_learned().target
        if not target.has_probabilities:
            raise ConfigurationError(f"{target.plural} have no probabilities: call predict")
        return target.shares(self._allowed_scores(graph, nodes, tasks)).cpu()

    @torch.no_grad()
    def _allowed_scores(
        self, graph: Graph | Data, nodes: Tensor | None, tasks: Tensor | None
    ) -> Tensor:
        self._check_tasks_given(tasks)
        if not isinstance(graph, Graph):  # its edges are read as in training, labels are ignored
            if graph.x is None or graph.edge_index is None:
                raise DataError("the Data object must have 'x' and 'edge_index'")
            attributes = graph.to_dict() | {"y": torch.full((len(graph.x),), UNLABELLED)}
            arrays = read_attributes(attributes, "Data", names=())
            graph = Graph.from_edges(features=graph.x, **arrays, undirected=self.undirected_)
        nodes = torch.arange(graph.num_nodes) if nodes is None else nodes
        return self._allowed(self.logits_of_exam(graph, nodes, tasks), tasks)

    def novelty(self, graph: Graph, nodes: Tensor, *, logits: Tensor | None = None) -> Tensor:
        """Return the novelty of each node; larger is less like any learned class.  -> [nodes]

        By default the energy -log Σ_c exp(s_c) over all classes, in task-IL too, since the task of
        an unknown node is not known (Liu et al., NeurIPS 2020). A softmax would discard the size of
        the scores, which is small for an unknown node. A method whose scores are not
        log-probabilities up to a constant should override this.

        logits: the scores of these nodes, if already known, so that the model need not run again.
        """
        self._check_learned()
        scores = self.logits(graph, nodes) if logits is None else logits
        return -scores.logsumexp(dim=1)

    @torch.no_grad()
    def answer(self, graph: Graph, nodes: Tensor, tasks: Tensor | None = None) -> Predictions:
        """Return class, confidence and novelty of each node, from one pass of the model.

        Classes are numbered in order of arrival here, as in the labels of an ``Exam``.
        tasks: as in ``predict``. In task-IL a node of a task that has not been learned yet has no
        allowed class: only its novelty is meaningful.
        """
        self._check_tasks_given(tasks)
        logits = self.logits_of_exam(graph, nodes, tasks)
        target = self._check_learned().target
        if not target.is_class:
            return predicted_values(logits, target)
        allowed = self._allowed(logits, tasks)
        classes, confidence = likeliest(allowed)
        novelty = self.novelty(graph, nodes, logits=logits)
        return Predictions(classes.flatten().cpu(), confidence.flatten().cpu(), novelty.cpu())

    def logits_of_exam(self, graph: Graph, nodes: Tensor, tasks: Tensor | None) -> Tensor:
        """Return the scores used for predictions; ``tasks`` as in ``predict``.

        By default tasks only restrict the classes afterwards. A method that uses them further
        overrides this, and must document it: in class-IL other methods do not use them.
        """
        return self.logits(graph, nodes)

    def _check_learned(self) -> LabelSpace:
        if self.label_space_ is None:
            raise ConfigurationError("the learner has learned no task yet: call fit_task first")
        return self.label_space_

    def _check_tasks_given(self, tasks: Tensor | None) -> None:
        if self._check_learned().setting == "task-il" and tasks is None:
            raise ConfigurationError("tasks must be given in task-il: the task of each node")

    def _allowed(self, scores: Tensor, tasks: Tensor | None) -> Tensor:
        """Return the scores with -inf for classes that are not allowed.  -> [nodes, classes]"""
        if tasks is None:  # class-IL, where tasks do not matter
            tasks = torch.zeros(len(scores), dtype=torch.int64)
        allowed = self._check_learned().allowed(tasks, device=scores.device)
        return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)

    @torch.no_grad()
    def validate(self, task: Task) -> tuple[float, float] | None:
        """Return accuracy and minus the loss on a task's validation nodes: larger is better.

        The trainer's ``objective`` decides whether classes or nodes have equal weight. The loss
        breaks ties, which are frequent with few nodes. None without validation nodes.
        """
        if not len(task.validation):
            return None
        labels = task.validation_labels
        tasks = task.label_space.task_of(labels) if task.label_space.setting == "task-il" else None
        scores = self.logits_of_exam(task.graph, task.validation, tasks)
        scores = self._allowed(scores, tasks).float()
        labels = labels.to(scores.device)
        weights = class_balanced(labels) if self.trainer.objective == "balanced" else None
        weights = torch.ones_like(scores[:, 0]) if weights is None else weights
        right = (scores.argmax(dim=1) == labels).float()
        measures = torch.stack([right, -masked_losses(scores, labels)])
        accuracy, minus_loss = (measures @ weights / weights.sum()).tolist()
        return accuracy, minus_loss

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Return every trainable parameter by name."""
        return {
            f"{part}.{name}": parameter
            for part, module in self.modules()
            for name, parameter in module.named_parameters()
        }

    @property
    def usage(self) -> MemoryUsage:
        """Size of everything kept between tasks besides the model itself."""
        return MemoryUsage()

    @property
    def coverage_ratio(self) -> float | None:
        """Coverage ratio R_c of the memory; None if the method stores no nodes."""
        return None

    @property
    def recomputed(self) -> tuple[int, int] | None:
        """Number of old embeddings recomputed, and of all; None if they are never recomputed."""
        return None

    @property
    def embed_seconds(self) -> float:
        """Seconds spent computing embeddings so far."""
        return 0.0

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that have a ``state`` of their own and ``restore`` it, by name."""
        return {"adam": self.trainer}

    def state(self) -> dict[str, Tensor]:
        """Return everything that later tasks depend on, as named CPU tensors."""
        state = {f"model.{name}": p.detach().cpu() for name, p in self.named_parameters().items()}
        state |= {
            f"model.{part}.{name}": buffer.cpu()
            for part, module in self.modules()
            for name, buffer in module.named_buffers()
        }
        for part_name, part in self.parts.items():
            state |= {f"{part_name}.{name}": value.cpu() for name, value in part.state().items()}
        state["generator"] = self.generator.get_state()
        return state

    def save(self, path: Path | str) -> None:
        """Write the learner to one file, from which ``load_learner`` restores it.

        The file holds the parameters, everything learned and stored, and the labels of the classes.
        It is a safetensors file, so that reading it runs no code.
        """
        from safetensors.torch import save

        label_space = self._check_learned()
        metadata = {
            "format": FORMAT,
            "evergraph": own_version(),
            "method": description(self),
            "label_space": asdict(label_space),
            "undirected": self.undirected_,
        }
        tensors = {name: value.contiguous() for name, value in self.state().items()}
        content = save(tensors, metadata={KEY: json.dumps(metadata)})
        with results_written(Path(path)), written_aside(Path(path)) as file:
            file.write(content)

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        """Restore what ``state`` returned."""
        self.label_space_ = label_space
        for name, part in self.parts.items():
            part.restore(part_of(state, f"{name}."))
        self.generator.set_state(state["generator"])


def part_of(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the entries under a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def description(part: Part) -> dict[str, Any]:
    """Return a part as JSON: its name, if it has one, and its parameters."""
    named = {"name": part.name} if hasattr(part, "name") else {}
    parameters = {k: v for k, v in part.get_params().items() if k not in SURROUNDINGS}
    for key, value in parameters.items():
        try:
            parameters[key] = (
                description(value) if isinstance(value, Part) else json.loads(json.dumps(value))
            )
        except TypeError:
            raise ConfigurationError(
                f"{key} of {type(part).__name__} cannot be saved: it must be text, a number or a "
                f"list of such, not {type(value).__name__}"
            ) from None
    return named | parameters
