"""The base of all methods, their registry, and learners that ``Learner.save`` wrote."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from evergraph.core.component import Made, Resolver
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.label_space import LabelSpace
from evergraph.core.mapped import is_mapped
from evergraph.graphs import Graph
from evergraph.memory import MemoryUsage
from evergraph.methods.examples import Examples, Weighting, make_examples
from evergraph.nn import PDGNN, Backbone, backbones, masked_cross_entropy
from evergraph.streams import Task
from evergraph.training import Batch, Learner, Trainer
from evergraph.training.learner import FORMAT, KEY, part_of

# How ``class_weights`` weighs nodes.
Weights = Literal["class-sizes", "equal"]
WEIGHTS: tuple[str, ...] = get_args(Weights)


@dataclass(kw_only=True, eq=False, repr=False)
class BackboneLearner(Learner):
    """Trains a backbone on the current task's nodes, and nothing else.

    Args:
        backbone: the model; the method's own default unless given.
        trainer: runs the epochs; by default with the settings recommended by the backbone.
    """

    default_backbone: ClassVar[str] = "gcn"
    # Whether the trainer's ``objective`` decides how its loss weighs nodes.
    follows_objective: ClassVar[bool] = True
    # Whether Adam's moments can be carried from task to task: not if each task has new weights.
    carries_moments: ClassVar[bool] = True
    chooses: ClassVar[bool] = False  # whether it chooses among a backbone's candidates
    # The kind of backbone that it supports, and why no other, in words that follow its name.
    needs: ClassVar[tuple[type[Backbone], str]] = (Backbone, "")

    backbone: Made[Backbone] = Made(backbones)

    def __post_init__(self) -> None:
        if self.backbone is None:  # before the trainer, which takes its settings
            self.backbone = self._parameter_default("backbone")
        backbone = self.backbone
        self.check_backbone(backbone)
        if backbone.networks_trained > 1 and not self.chooses:
            raise ConfigurationError(
                f"backbone {backbone.name!r} selects the best of {backbone.networks_trained} "
                f"networks, which {self.name} does not support: use backbone 'residual'"
            )
        super().__post_init__()
        self.backbone.place(self.device, self.resources)
        self._dims = 0
        self._examples: Examples | None = None
        self._noise = self.generator  # for dropout; on a GPU, a generator of that device

    def _parameter_default(self, name: str) -> Any:
        if name == "backbone":
            refresh = getattr(self, "refresh", "none")
            return backbones.make(self.backbone_by_default(refresh=refresh))
        if name == "trainer":
            return Trainer(**vars(self.backbone.recipe))
        return self.make_memory() if name == "memory" else super()._parameter_default(name)

    @classmethod
    def backbone_by_default(cls, **parameters: Any) -> str:
        """Return the name of the default backbone, given the method's other parameters."""
        return cls.default_backbone

    @classmethod
    def suited_to(cls, *, edges: str) -> dict[str, Any]:
        """Return the parameters whose default changes for this kind of stream."""
        return {}

    @classmethod
    def check_backbone(cls, backbone: Backbone) -> None:
        """Raise if the method does not support this backbone, see ``needs``."""
        kind, why = cls.needs
        if not isinstance(backbone, kind):
            raise ConfigurationError(f"{cls.name} {why}, not {backbone.name!r}")

    @classmethod
    def make_memory(cls, **options: Any) -> Any:
        """Return a new memory of the method's kind; None if the method has no memory."""
        return None

    @property
    def sight(self) -> int | None:
        return self.backbone.hops if getattr(self, "refresh", "none") == "none" else None

    def begin_task(self, task: Task) -> int:
        """Add outputs for the task's classes and prepare its graph, once."""
        self.label_space_ = task.label_space
        inputs = self.backbone.prepare(task.graph)
        self._make_room(self.backbone.width_of(inputs), task.label_space.num_classes)
        self._examples = self.examples(task)
        return len(self._examples)

    @property
    def draws_from(self) -> Sequence[torch.Generator] | None:
        """Dropout's generator if a step computes only f_out on embeddings, else None."""
        is_plain = type(self).loss is BackboneLearner.loss
        is_plain &= type(self).adjust_gradients is Learner.adjust_gradients
        in_memory = self._examples is not None and not is_mapped(self._examples.inputs)
        decoupled = isinstance(self.backbone, PDGNN)
        return (self._noise,) if is_plain and in_memory and decoupled else None

    def examples(self, task: Task) -> Examples:
        """Return the training examples; here the task's own training nodes."""
        inputs = self.backbone.prepare(task.graph)
        inputs, rows = self.backbone.narrowed(inputs, task.train.to(self.device))
        targets = task.train_labels.to(self.device)
        weighting: Weighting = "class-balanced" if self.trainer.objective == "balanced" else "plain"
        return make_examples(
            inputs, rows, targets, label_space=task.label_space, weighting=weighting
        )

    def loss(self, batch: Batch) -> Tensor:
        return self.classification_loss(self.scores(batch), batch)

    def step_work(self, examples: int) -> int | None:
        return self.backbone.step_work(examples)

    def scores(self, batch: Batch) -> Tensor:
        """Return the class scores of some of the examples.  -> [batch, classes]"""
        assert self._examples is not None
        rows = self._examples.rows_of(batch)
        scores: Tensor = self.backbone(self._examples.inputs, rows, generator=self._noise)
        return scores

    def classification_loss(self, scores: Tensor, batch: Batch) -> Tensor:
        """Return the weighted cross-entropy of scores.  [batch, classes] -> []"""
        assert self._examples is not None
        examples = self._examples
        return masked_cross_entropy(
            scores,
            examples.targets[batch],
            weights=examples.weights[batch],
            allowed=None if examples.allowed is None else examples.allowed[batch],
            offsets=examples.offsets,
            smoothing=self.trainer.smoothing,
        )

    def end_task(self, task: Task) -> None:
        self._examples = None

    @torch.no_grad()
    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        self.backbone.eval()
        scores: Tensor = self.backbone(*self.backbone.asked(graph, nodes))
        self.backbone.train()
        return scores

    @torch.no_grad()
    def residuals(self, inputs: Any, targets: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the softmax of the scores minus the one-hot class.  -> [rows, classes]"""
        self.backbone.eval()
        probabilities: Tensor = self.backbone(inputs, rows).softmax(1)
        self.backbone.train()
        positions = torch.arange(len(targets), device=targets.device)
        probabilities[positions, targets] -= 1.0
        return probabilities

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        if self.backbone.begun:
            yield "backbone", self.backbone

    def _make_room(self, dims: int, classes: int) -> None:
        if dims == 0:
            raise ConfigurationError(
                "the graph has no features to learn from: add node features, or only inspect its "
                "structure (evergraph info)"
            )
        if not self.backbone.begun:
            self._dims = dims
            self.backbone.begin(dims, generator=self.generator)
            if self.device.type != "cpu":  # dropout needs a generator of the device
                seed = int(torch.randint(2**62, (1,), generator=self.generator))
                self._noise = torch.Generator(self.device).manual_seed(seed)
        self.backbone.grow(classes, generator=self.generator)

    @property
    def embed_seconds(self) -> float:
        return self.backbone.embed_seconds

    def state(self) -> dict[str, Tensor]:
        state = super().state()
        state["dims"] = torch.tensor(self._dims)
        if self._noise is not self.generator:
            state["noise"] = self._noise.get_state()
        return state

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        self._make_room(int(state["dims"]), label_space.num_classes)
        self.backbone.load_state_dict(part_of(state, "model.backbone."))
        super().restore(state, label_space)
        if "noise" in state and self._noise is not self.generator:  # else it was saved from a GPU
            self._noise.set_state(state["noise"])


class MemoryLearner(BackboneLearner):
    """Keeps a memory of earlier tasks, see ``make_memory``."""

    memory: Any

    @property
    def usage(self) -> MemoryUsage:
        usage: MemoryUsage = self.memory.usage
        return usage

    @property
    def parts(self) -> dict[str, Any]:
        return super().parts | {"memory": self.memory}


class WholeTaskLearner(BackboneLearner):
    """Learns a task as a whole by its own ``fit_task``, without a trainer's epochs."""

    follows_objective = False

    @abstractmethod
    def fit_task(self, task: Task) -> None:
        """Learn one task."""

    def begin_task(self, task: Task) -> int:
        """Raise, since there are no epochs to prepare."""
        raise ConfigurationError(f"{self.name} learns a task as a whole: call fit_task")

    def loss(self, batch: Batch) -> Tensor:
        """Raise, see ``begin_task``."""
        raise ConfigurationError(f"{self.name} learns a task as a whole: call fit_task")


def class_weights(task: Task, *, sized: bool) -> Tensor:
    """Return one over the labelled nodes of each class if ``sized``, else 1.  -> [classes]"""
    sizes = torch.ones(task.label_space.num_classes)
    if sized:
        for label, size in task.known_sizes.items():
            sizes[label] = size
    return sizes.reciprocal()


methods = Resolver[BackboneLearner]("method")


def load_learner(path: Path | str, *, device: str | None = None) -> BackboneLearner:
    """Return the learner in a file; its predictions and further training continue unchanged.

    Register your own methods first. Results are identical to the bit on the same kind of device.

    Args:
        path: the file written by ``Learner.save``.
        device: ``auto``, ``cpu`` or ``cuda``; by default the learner's own, or the CPU if the
            learner used a GPU and there is none.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path), framework="pt") as file:
            metadata = json.loads((file.metadata() or {})[KEY])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except (SafetensorError, KeyError, ValueError):
        raise DataError(f"{path} is not a learner saved by evergraph") from None
    if metadata.get("format") != FORMAT:
        raise DataError(
            f"{path} has format {metadata.get('format')!r}, written by evergraph "
            f"{metadata.get('evergraph')}, but this version reads {FORMAT}"
        )
    try:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in metadata["label_space"].items()
        }
        label_space = LabelSpace(**fields)
        learner = _new_learner(metadata["method"], device)
        learner.restore(state, label_space)
        learner.undirected_ = bool(metadata["undirected"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{path} does not hold a whole learner: {error}") from error
    return learner


def _new_learner(description: Mapping[str, Any], device: str | None) -> BackboneLearner:
    parameters = dict(description)
    name = parameters.pop("name")
    trainer_parameters = dict(parameters.pop("trainer"))
    device_name = trainer_parameters.pop("device") if device is None else device
    if device is None and device_name == "cuda" and not torch.cuda.is_available():
        device_name = "cpu"
    if isinstance(memory := parameters.get("memory"), Mapping):  # else a number of bytes
        parameters["memory"] = methods.resolve(name).make_memory(**memory)
    trainer = Trainer(**{**trainer_parameters, "device": device_name})
    return methods.make(name, **parameters, trainer=trainer, generator=torch.Generator())
