"""The only epoch loop."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from evergraph.core.errors import DivergedError
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.methods import EWC, TEM, Finetune, methods
from evergraph.methods.base import BackboneLearner
from evergraph.nn import GCN, PDGNN
from evergraph.streams import GraphStream, Task
from evergraph.training import Batch, Learner, Trainer, batches
from evergraph.training.trainer import Adam

CPU = torch.device("cpu")


class Line(Learner):
    """Fits y = w · x to (1, 2): loss (w - 2)², one example; grows every task."""

    name = "line"

    def __init__(self, *, trainer: Trainer) -> None:
        super().__init__(trainer=trainer, generator=seeded(0))
        self.weights = nn.Module()
        self.weights.w = nn.Parameter(torch.zeros(0))
        self.calls: list[str] = []

    def begin_task(self, task: Task) -> int:
        self.calls.append("begin")
        old = self.weights.w.detach()
        self.weights.w = nn.Parameter(torch.cat([old, torch.zeros(1)]))
        return 1

    def loss(self, batch: Batch) -> Tensor:
        self.calls.append("loss")
        return ((self.weights.w - 2) ** 2).sum()

    def adjust_gradients(self) -> None:
        self.calls.append("adjust")
        assert self.weights.w.grad is not None

    def end_task(self, task: Task) -> None:
        self.calls.append("end")

    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        return self.weights.w.expand(len(nodes), -1)

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        yield "line", self.weights


def test_one_step_of_adam_by_hand(small_graph):
    learner = Line(trainer=Trainer(epochs=1, lr=0.1, device="cpu"))
    learner.fit_task(GraphStream(small_graph).open(0))
    assert learner.calls == ["begin", "loss", "adjust", "end"]
    # Adam's first step is lr · g/|g|, whatever the size of the gradient.
    assert learner.weights.w.item() == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("decoupled", [False, True])
def test_steps_have_the_bits_of_torchs_own(decoupled):
    ours, theirs = (
        [nn.Parameter(torch.randn(*shape, generator=seeded(0))) for shape in ((7, 5), (5,), (1,))]
        for _ in range(2)
    )
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    other = kind(theirs, lr=0.01, weight_decay=0.1, fused=True)
    adam = Adam(ours, lr=0.01, weight_decay=0.1, decoupled=decoupled, device=CPU)
    for step in range(6):
        other.param_groups[0]["lr"] = 0.01 / (step + 1)
        adam.lr.fill_(0.01 / (step + 1))
        for optimiser, parameters in ((adam, ours), (other, theirs)):
            optimiser.zero_grad()
            loss = parameters[0].sin().mv(parameters[1]).square().sum()
            if step % 2:  # without a gradient neither weights nor moments move
                loss = loss + parameters[2].exp().sum()
            loss.backward()
            optimiser.step()
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.equal(yours)
        for name, value in other.state[yours].items():
            assert adam.state[mine][name].equal(value), name


def test_a_cpu_needs_no_compiler(monkeypatch, small_graph):
    # Optimisers of torch.optim import it when they are made, which takes seconds.
    monkeypatch.delattr(torch.optim, "Adam")
    Line(trainer=Trainer(epochs=1, device="cpu")).fit_task(GraphStream(small_graph).open(0))


@pytest.mark.parametrize(("momentum", "steps"), [("carried", 6), ("fresh", 3)])
def test_moments_may_be_carried_over(momentum, steps, small_graph):
    trainer = Trainer(epochs=3, momentum=momentum, device="cpu")
    learner, stream = Line(trainer=trainer), GraphStream(small_graph)
    seen = []
    learner.fit_task(stream.open(0))
    kept = trainer.state()
    assert bool(kept) is (momentum == "carried")
    original = trainer._keep_moments

    def spy(optimiser, parameters):
        seen.append(float(optimiser.state[learner.weights.w]["step"]))
        moment = optimiser.state[learner.weights.w]["exp_avg"]
        assert moment.shape == (2,)  # grown with its parameter
        original(optimiser, parameters)

    trainer._keep_moments = spy
    learner.fit_task(stream.open(1))
    assert seen == [steps]


def test_adam_is_given_the_penalty(small_graph):
    weights = []
    for decay in (0.0, 0.1):
        learner = Line(trainer=Trainer(epochs=1, weight_decay=decay, device="cpu"))
        for index in (0, 1):  # Adam's first step is as long as its rate, whatever the gradient
            learner.fit_task(GraphStream(small_graph).open(index))
        weights.append(learner.weights.w[0].item())
    assert weights[1] < weights[0]


@pytest.mark.parametrize(
    ("setting", "decided"), [("class-il", [True, False]), ("task-il", [True, True])]
)
def test_the_penalty_rests_while_there_is_no_second_class_to_choose(setting, decided, small_graph):
    stream = GraphStream(small_graph, classes_per_task=1, setting=setting)
    trainer = Trainer(epochs=2, weight_decay=0.01, device="cpu")
    learner = methods.make("finetune", trainer=trainer, generator=seeded(0))
    learner.begin_task(stream.open(0))
    for index, rests in enumerate(decided):
        before = [p.detach().clone() for p in learner.backbone.parameters()]
        learner.fit_task(stream.open(index))
        after = [p.detach() for p in learner.backbone.parameters()]
        same = [b.equal(a[: len(b)]) for b, a in zip(before, after, strict=True)]
        assert all(same) is rests  # the loss says nothing, and the penalty must not speak alone


def test_the_cosine_schedule_ends_near_zero(small_graph):
    rates = []
    trainer = Trainer(epochs=4, lr=1.0, schedule="cosine", device="cpu")
    original = trainer._set_rate

    def spy(optimiser, epoch):
        original(optimiser, epoch)
        rates.append(float(optimiser.lr))

    trainer._set_rate = spy
    Line(trainer=trainer).fit_task(GraphStream(small_graph).open(0))
    half = 2**-0.5
    assert rates == pytest.approx([1.0, (1 + half) / 2, 0.5, (1 - half) / 2], abs=1e-6)


def test_a_full_batch_copies_nothing():
    assert list(batches(10, None, generator=seeded(0), device=CPU)) == [slice(None)]
    assert list(batches(10, 10, generator=seeded(0), device=CPU)) == [slice(None)]


class Astray(Line):
    """Fits y = w · x to a point at infinity: the loss alone, or its slope as well, overflows."""

    name = "astray"

    def __init__(self, *, strength: float, slope: bool, trainer: Trainer) -> None:
        super().__init__(trainer=trainer)
        self.strength = strength
        self.slope = slope

    def loss(self, batch: Batch) -> Tensor:
        part = self.weights.w.sum() * (self.strength if self.slope else 1.0)
        return part + self.strength


@pytest.mark.parametrize("slope", [False, True])
def test_training_that_diverges_keeps_nothing(slope, small_graph):
    trainer = Trainer(epochs=2, lr=0.5, device="cpu")
    learner = Astray(strength=float("inf"), slope=slope, trainer=trainer)
    with pytest.raises(DivergedError) as caught:
        learner.fit_task(GraphStream(small_graph).open(0))
    assert str(caught.value) == (
        "training of astray on task 0 ended in numbers that are not finite: lower lr (now 0.5) or "
        "strength (now inf), or scale the features down"
    )
    assert bool(learner.weights.w.isfinite().all()) is not slope
    assert "end" not in learner.calls
    assert not trainer.state()


class Counting(Line):
    """Notes how many threads every step has; ``work`` is what it says of a step."""

    def __init__(self, work: int | None, *, fails: bool = False) -> None:
        super().__init__(trainer=Trainer(epochs=1, batch_size=4, device="cpu"))
        self.work, self.fails = work, fails
        self.asked: list[int] = []
        self.threads: list[int] = []

    def step_work(self, examples: int) -> int | None:
        self.asked.append(examples)
        return self.work

    def loss(self, batch: Batch) -> Tensor:
        self.threads.append(torch.get_num_threads())
        if self.fails:
            raise ValueError("a step that fails")
        return super().loss(batch)


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("work", "threads"), [(1000, 1), (100_000_000, 2), (10**12, 3), (None, 3)])
def test_steps_use_few_threads(work, threads, small_graph):
    learner = Counting(work)
    learner.fit_task(GraphStream(small_graph).open(0))
    assert learner.asked == [1]  # a batch of 4 would be more examples than there are
    assert learner.threads == [threads]
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_threads_come_back_after_a_step_that_fails(small_graph):
    with pytest.raises(ValueError, match="a step that fails"):
        Counting(1000, fails=True).fit_task(GraphStream(small_graph).open(0))
    assert torch.get_num_threads() == 3


class Path(Line):
    """Walks w by one step of Adam an epoch, and is best on validation nodes where w is near 0.3."""

    def __init__(self, *, trainer: Trainer, goal: float = 0.3) -> None:
        super().__init__(trainer=trainer)
        self.goal = goal
        self.looked: list[float] = []

    def validate(self, task: Task) -> tuple[float, float] | None:
        self.looked.append(round(self.weights.w.item(), 2))
        return 0.5, -abs(self.weights.w.item() - self.goal)  # the loss decides between equals


def test_early_stopping_keeps_the_best_weights_and_ends_the_task(small_graph):
    epochs = []
    trainer = Trainer(
        epochs=50,
        lr=0.1,
        weight_decay=0.0,
        patience=2,
        device="cpu",
        on_epoch=lambda task, epoch: epochs.append(epoch),
    )
    learner = Path(trainer=trainer)
    learner.fit_task(GraphStream(small_graph).open(0))
    assert learner.looked == [0.1, 0.2, 0.3, 0.4, 0.5]  # two epochs without a better one
    assert epochs == [0, 1, 2, 3, 4]
    assert learner.weights.w.item() == pytest.approx(0.3, abs=0.01)
    assert learner.calls[-1] == "end"  # what is kept for later is of the best weights
    # Without patience the last weights are kept.
    learner = Path(trainer=Trainer(epochs=5, lr=0.1, weight_decay=0.0, device="cpu"))
    learner.fit_task(GraphStream(small_graph).open(0))
    assert learner.looked == []
    assert learner.weights.w.item() == pytest.approx(0.5, abs=0.02)
    # Validation nodes are looked at every few epochs and after the last.
    trainer = Trainer(epochs=5, lr=0.1, patience=9, evaluate_every=2, device="cpu")
    learner = Path(trainer=trainer, goal=9.0)
    learner.fit_task(GraphStream(small_graph).open(0))
    assert learner.looked == [0.2, 0.4, 0.5]
    assert learner.weights.w.item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("objective", "accuracy"), [("balanced", 0.5), ("plain", 0.75)])
def test_the_better_epoch_by_hand(objective, accuracy, small_graph):
    stream = GraphStream(small_graph)
    task = stream.open(0)
    # Three nodes of class 0 and one of class 1, and a learner that calls everything 0.
    few = [(task.validation_labels == label).nonzero().flatten() for label in (0, 1)]
    chosen = torch.cat([few[0][:3], few[1][:1]])
    part = {
        "validation": task.validation[chosen],
        "validation_labels": task.validation_labels[chosen],
    }
    learner = methods.make(
        "finetune", trainer=Trainer(objective=objective, device="cpu"), generator=seeded(0)
    )
    learner.begin_task(task)
    learner.logits = lambda graph, nodes: torch.tensor([[2.0, 0.0]]).expand(len(nodes), 2)
    found = learner.validate(replace(task, **part))
    right, wrong = torch.tensor([2.0, 0.0]).log_softmax(0)
    loss = accuracy * right + (1 - accuracy) * wrong
    assert found == (pytest.approx(accuracy), pytest.approx(loss.item()))
    assert learner.validate(replace(task, validation=task.validation[:0])) is None


def test_decoupled_decay_shrinks_weights_beside_the_step(small_graph):
    weights = []
    for decay in (0.0, 0.5):
        trainer = Trainer(epochs=2, lr=0.1, weight_decay=decay, decay="decoupled", device="cpu")
        learner = Line(trainer=trainer)
        learner.fit_task(GraphStream(small_graph).open(0))
        weights.append(learner.weights.w.item())
    # Nothing to shrink at the first step; at the second, 0.1 times (1 - lr · decay).
    assert weights[1] == pytest.approx(weights[0] - 0.1 * 0.1 * 0.5, abs=1e-4)


def two_tasks() -> GraphStream:
    return GraphStream(load("synthetic", nodes=400, classes=4, features=16))


def learner_of(
    kind: type[BackboneLearner], backbone: object, device: str = "cpu"
) -> BackboneLearner:
    trainer = Trainer(epochs=8, batch_size=50, device=device, schedule="cosine")
    return kind(backbone=backbone, trainer=trainer, generator=seeded(0, "test"))


def test_only_the_plain_loss_on_embeddings_can_be_recorded():
    task = two_tasks().open(0)
    for kind, backbone, recorded in (
        (TEM, PDGNN(), True),
        (Finetune, PDGNN(), True),
        (EWC, PDGNN(), False),  # its loss has another term
        (Finetune, GCN(), False),
    ):
        learner = learner_of(kind, backbone)
        assert learner.draws_from is None  # nothing to train on yet
        learner.begin_task(task)
        assert (learner.draws_from is not None) == recorded, (kind, backbone)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_steps_give_what_ordinary_ones_give(monkeypatch):
    def trained():
        learner = learner_of(TEM, PDGNN(dropout=0.5), "cuda")
        for task in two_tasks():
            learner.fit_task(task)
        return learner.state()

    recorded = trained()
    again = trained()
    monkeypatch.setattr(BackboneLearner, "draws_from", None)
    ordinary = trained()
    for name, value in recorded.items():
        # cuBLAS promises no bits where several streams are at work (another process is enough).
        torch.testing.assert_close(value.double(), again[name].double(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(value.double(), ordinary[name].double(), rtol=1e-3, atol=1e-4)
