"""The epoch loop, its batches, and Adam without torch's compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from evergraph.core.component import Made, Part, choice, integer, number
from evergraph.core.errors import DivergedError, check_integer
from evergraph.core.resources import Resources, choose_device, denormals_flushed, worthwhile_threads
from evergraph.nn.linear import padded
from evergraph.streams import Task

Momentum = Literal["carried", "fresh"]
Schedule = Literal["constant", "cosine"]
Decay = Literal["coupled", "decoupled"]
Objective = Literal["balanced", "plain"]
Batch = Tensor | slice
EVERYTHING = slice(None)
POOL = 1 << 18  # rows shuffled together
ROWS_PER_BLOCK = 1 << 12  # neighbouring rows that stay together in a pool
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class _Learner(Protocol):  # what the trainer needs of a ``Learner``, which imports this file
    generator: torch.Generator

    @property
    def draws_from(self) -> Sequence[torch.Generator] | None: ...
    def begin_task(self, task: Task) -> int: ...
    def loss(self, batch: Batch) -> Tensor: ...
    def step_work(self, examples: int) -> int | None: ...
    def adjust_gradients(self) -> None: ...
    def end_task(self, task: Task) -> None: ...
    def named_parameters(self) -> dict[str, nn.Parameter]: ...
    def validate(self, task: Task) -> tuple[float, float] | None: ...


@dataclass(kw_only=True, eq=False, repr=False)
class Trainer(Part):
    """Runs Adam over a learner's loss, task after task.

    Args:
        epochs: passes over a task's examples.
        lr: learning rate.
        weight_decay: L2 penalty, applied as ``decay`` says.
        batch_size: examples per step; None for all at once.
        momentum: ``carried`` keeps Adam's moments from task to task (the released code's one
            optimiser for the whole sequence), ``fresh`` resets them at each task.
        schedule: ``constant``, or ``cosine`` from ``lr`` to 0 within each task.
        decay: whether the penalty is part of Adam's gradient (``coupled``, as in the released
            code) or shrinks weights directly (``decoupled``: AdamW).
        smoothing: share of every label that the loss spreads over all classes.
        patience: a task ends after this many epochs without a better result on its validation
            nodes, and the best weights are kept; 0 runs all epochs and keeps the last weights. A
            task without validation nodes is trained as with 0.
        evaluate_every: number of epochs between validations, with ``patience``.
        objective: which accuracy counts as better, and which loss a method without its own
            weighting minimises: classes have equal weight (``balanced``) or nodes (``plain``).
        device: ``auto``, ``cpu`` or ``cuda``.
        resources: memory that may be used, and workers for work that can be divided.
        on_epoch: called with (task, epoch) after every epoch.
    """

    epochs: int = integer(30, least=1)
    lr: float = number(0.005, least=0.0)
    weight_decay: float = number(1e-5, least=0.0)
    batch_size: int | None = 512
    momentum: Momentum = choice("carried", ("carried", "fresh"))
    schedule: Schedule = choice("constant", ("constant", "cosine"))
    decay: Decay = choice("coupled", ("coupled", "decoupled"))
    smoothing: float = number(0.0, least=0.0, most=0.99)
    patience: int = integer(0, least=0)
    evaluate_every: int = integer(1, least=1)
    objective: Objective = choice("balanced", ("balanced", "plain"))
    device: Any = "auto"
    resources: Made[Resources] = Made(default=Resources)
    on_epoch: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, least=1)
        self._device = self.device  # as given, since ``auto`` may resolve differently elsewhere
        self.device: torch.device = choose_device(self.device)
        self.moments_: dict[str, Tensor] = {}

    def _parameter_value(self, name: str) -> Any:
        return self._device if name == "device" else super()._parameter_value(name)

    @denormals_flushed()
    def fit(self, learner: _Learner, task: Task) -> None:
        """Train a learner on one task."""
        count = learner.begin_task(task)
        parameters = learner.named_parameters()
        # Without a loss, Adam follows the penalty alone at the full rate, however small it is: a
        # few hundred steps would bring every weight to zero, and a deep network would stay there.
        decay = 0.0 if task.label_space.decided else self.weight_decay
        optimiser = self._optimiser(parameters, decay=decay)
        last_loss: list[Tensor] = []
        # The best weights on validation nodes, the first of equally good ones.
        best_score: tuple[float, float] | None = None
        best_epoch = 0
        best_weights: dict[str, Tensor] = {}
        step = self._step(learner, optimiser, last_loss)
        with worthwhile_threads(learner.step_work(min(count, self.batch_size or count))):
            for epoch in range(self.epochs):
                self._set_rate(optimiser, epoch)
                for batch in batches(
                    count, self.batch_size, generator=learner.generator, device=self.device
                ):
                    step(batch)
                if self.on_epoch is not None:
                    self.on_epoch(task.index, epoch)
                last_or_due = epoch + 1 == self.epochs or (epoch + 1) % self.evaluate_every == 0
                if self.patience and last_or_due:
                    score = learner.validate(task)
                    if score is not None and (best_score is None or score > best_score):
                        best_score, best_epoch = score, epoch
                        best_weights = {n: p.detach().clone() for n, p in parameters.items()}
                    if best_score is not None and epoch - best_epoch >= self.patience:
                        break
        self._check_finite(learner, task, [*last_loss, *parameters.values()])
        self._keep_moments(optimiser, parameters)
        with torch.no_grad():
            for name, value in best_weights.items():
                parameters[name].copy_(value)
        learner.end_task(task)

    def _check_finite(self, learner: _Learner, task: Task, values: Sequence[Tensor]) -> None:
        """Raise if training has diverged; once per task, since reading from a GPU means waiting.

        Values that are not finite stay so: later steps do not repair them.
        """
        if bool(torch.stack([value.detach().isfinite().all() for value in values]).all()):
            return
        kind = type(learner)
        too_high = [f"lr (now {self.lr:g})"]
        for name in inspect.signature(kind).parameters:
            if name.endswith("strength"):
                too_high.append(f"{name} (now {getattr(learner, name):g})")
        raise DivergedError(
            f"training of {getattr(kind, 'name', kind.__name__)} on task {task.index} ended in "
            f"numbers that are not finite: lower {' or '.join(too_high)}, or scale the features down"
        )

    def _step(
        self, learner: _Learner, optimiser: Adam, last_loss: list[Tensor]
    ) -> Callable[[Batch], None]:
        """Return a function that does a step and stores its loss in ``last_loss``."""

        def step(batch: Batch) -> None:
            optimiser.zero_grad()
            loss = learner.loss(batch)
            loss.backward()
            learner.adjust_gradients()
            optimiser.step()
            last_loss[:] = [loss.detach()]

        if self.device.type != "cuda" or learner.draws_from is None:
            return step
        return CapturedSteps(step, generators=learner.draws_from)

    def _optimiser(self, parameters: Mapping[str, nn.Parameter], *, decay: float) -> Adam:
        decoupled = self.decay == "decoupled"
        optimiser = Adam(
            parameters.values(),
            lr=self.lr,
            weight_decay=decay,
            decoupled=decoupled,
            device=self.device,
        )
        for name, parameter in parameters.items():
            if f"{name}.step" in self.moments_:
                step, first, second = (self.moments_[f"{name}.{kind}"] for kind in _MOMENTS)
                optimiser.state[parameter] = {
                    "step": step.to(parameter.device),
                    "exp_avg": padded(first, parameter),
                    "exp_avg_sq": padded(second, parameter),
                }
        return optimiser

    def _set_rate(self, optimiser: Adam, epoch: int) -> None:
        if self.schedule == "cosine":
            share = torch.tensor(torch.pi * epoch / self.epochs).cos().add(1).div(2).item()
            optimiser.lr.fill_(self.lr * share)

    def _keep_moments(self, optimiser: Adam, parameters: Mapping[str, nn.Parameter]) -> None:
        if self.momentum == "fresh":
            return
        self.moments_ = {
            f"{name}.{kind}": optimiser.state[parameter][kind].detach().cpu()
            for name, parameter in parameters.items()
            for kind in _MOMENTS
        }

    def state(self) -> dict[str, Tensor]:
        """Return Adam's moments by parameter."""
        return dict(self.moments_)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.moments_ = dict(state)


def batches(
    count: int, batch_size: int | None, *, generator: torch.Generator, device: torch.device
) -> Iterator[Batch]:
    """Yield the rows of each batch of one epoch: all at once, or shuffled parts of similar size.

    A full batch is a slice, so that nothing is copied. Parts differ by one row at most, so that
    no epoch ends on a tiny, noisy step. Beyond ``POOL`` rows, which may be on disk, blocks of
    neighbouring rows are shuffled first, and then the rows within each pool of blocks: an epoch
    reads the disk mostly in sequence.

    >>> [len(b) for b in batches(10, 4, generator=torch.Generator(), device=torch.device("cpu"))]
    [4, 3, 3]
    """
    if batch_size is None or count <= batch_size:
        yield EVERYTHING
        return
    for order in _pools(count, generator):
        yield from order.to(device).tensor_split(-(-len(order) // batch_size))


def _pools(count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield every row once, shuffled pool by pool."""
    if count <= POOL:
        yield torch.randperm(count, generator=generator)
        return
    blocks = torch.arange(count).tensor_split(-(-count // ROWS_PER_BLOCK))
    order = torch.randperm(len(blocks), generator=generator)
    for part in order.tensor_split(-(-count // POOL)):
        rows = torch.cat([blocks[block] for block in part.tolist()])
        yield rows[torch.randperm(len(rows), generator=generator)]


# Ordinary steps before one is recorded, so that libraries and the optimiser's state are
# initialised by then.
STEPS_BEFORE_RECORDING = 3


class CapturedSteps:
    """Runs training steps, as a CUDA graph from the fourth batch of a size on.

    A small model's step is a hundred kernel launches, each slower than its kernel. A recorded step
    is one launch. It reads its rows from one buffer, to which every batch is copied; batches of
    another size need another recording, and an epoch has two sizes at most. step: does one step,
    without reading values on the CPU; generators: those that it draws from.
    """

    def __init__(
        self, step: Callable[[Batch], None], *, generators: Sequence[torch.Generator] = ()
    ) -> None:
        self._step, self._generators = step, generators
        self._steps_done: dict[int, int] = {}  # by size of the batch
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Batch]] = {}
        self._stream = torch.cuda.Stream()

    def __call__(self, batch: Batch) -> None:
        """Do a step."""
        size = len(batch) if isinstance(batch, Tensor) else -1
        self._steps_done[size] = self._steps_done.get(size, 0) + 1
        if self._steps_done[size] <= STEPS_BEFORE_RECORDING:
            # On the recording's stream, so that its allocations can be reused.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._step(batch)
            torch.cuda.current_stream().wait_stream(self._stream)
            return
        if size not in self._recorded:
            graph = torch.cuda.CUDAGraph()
            for generator in self._generators:
                graph.register_generator_state(generator)
            rows = batch.clone() if isinstance(batch, Tensor) else batch
            with torch.cuda.graph(graph, stream=self._stream):
                self._step(rows)
            self._recorded[size] = graph, rows
        graph, rows = self._recorded[size]
        if isinstance(rows, Tensor) and isinstance(batch, Tensor):
            rows.copy_(batch)
        graph.replay()


class Adam:
    """Adam or AdamW with the bits of ``torch.optim`` and ``fused=True``.

    The first optimiser of ``torch.optim`` in a process imports torch's compiler, which takes as
    long as importing torch. Its kernels, called here, do not need it.

    Args:
        parameters: float32; those without a gradient are left alone.
        lr: learning rate.
        weight_decay: L2 penalty.
        decoupled: whether the penalty shrinks weights directly (AdamW), or is part of the gradient.
        device: where the parameters are.

    Attributes:
        lr: the learning rate, from which a recorded step reads it; it may be filled between steps.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        weight_decay: float,
        decoupled: bool,
        device: torch.device,
    ) -> None:
        self.parameters, self.weight_decay = list(parameters), weight_decay
        precision = torch.float64 if device.type == "cpu" else torch.float32  # what kernels read
        self.lr = torch.tensor(lr, dtype=precision, device=device)
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self._kernel: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Follow the gradients by one step."""
        trained = [parameter for parameter in self.parameters if parameter.grad is not None]
        for parameter in trained:
            if parameter not in self.state:
                self.state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in trained]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        self._kernel(
            trained,
            [parameter.grad for parameter in trained],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=self.lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
