"""First the task, then the class."""

from __future__ import annotations

import logging
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph, normalised, propagate, walk
from evergraph.graphs.normalisation import row_sums
from evergraph.memory import MemoryUsage
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods
from evergraph.methods.examples import Examples, make_examples
from evergraph.nn import PDGNN, Backbone
from evergraph.nn.pdgnn import PREDICT_ROWS
from evergraph.streams import Task
from evergraph.topology import SGC
from evergraph.training import Trainer
from evergraph.training.learner import part_of

Distance = Literal["angle", "euclidean"]
DISTANCES = ("angle", "euclidean")


def profile(graph: Graph, nodes: Tensor, *, steps: int) -> Tensor:
    """Return p = 1/n Σ_v d_v^-1/2 (Â^s X)_v over some nodes.  int64 [n] -> float32 [features]

    d counts a node among its own neighbours, as Â does.

    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[1.], [3.]]),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> profile(pair, torch.tensor([0, 1]), steps=1)  # smoothed to 2 and 2, d = 2
    tensor([1.4142])
    """
    smoothed = SGC(hops=steps).encode(graph)[nodes]
    return (_weights(graph, nodes) * smoothed).mean(0)


def likeness(graph: Graph, nodes: Tensor, profiles: Tensor, *, steps: int) -> Tensor:
    """Return ⟨profile of v alone, p_t⟩ for each node and task.  [tasks, features] -> [n, tasks]

    Smoothing is linear, so one column a task is smoothed instead of one a feature. The mean over
    several nodes is the likeness of their common profile.
    """
    columns = propagate(graph.features, profiles.t().contiguous())  # X pᵀ  [all nodes, tasks]
    for step in walk(normalised(graph), columns, hops=steps):
        columns = step
    return _weights(graph, nodes) * columns[nodes]


def nearest(likenesses: Tensor, profiles: Tensor, *, distance: Distance) -> Tensor:
    """Return the task whose profile is nearest.  [n, tasks], [tasks, features] -> int64 [n]

    angle: the largest ⟨x, p_t⟩ / ‖p_t‖. euclidean: the smallest ‖x - p_t‖², which is the largest
    ⟨x, p_t⟩ - ‖p_t‖² / 2.

    >>> profiles = torch.tensor([[1., 0.], [3., 3.]])
    >>> point = torch.tensor([[2., 1.]])
    >>> nearest(point @ profiles.t(), profiles, distance="angle")
    tensor([1])
    >>> nearest(point @ profiles.t(), profiles, distance="euclidean")
    tensor([0])
    """
    lengths: Tensor = profiles.norm(dim=1)
    if distance == "angle":
        return (likenesses / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)).argmax(1)
    return (likenesses - lengths.square() / 2).argmax(1)


def _weights(graph: Graph, nodes: Tensor) -> Tensor:
    """Return d_v^-1/2, d_v the sum of the weights around a node.  int64 [n] -> float32 [n, 1]"""
    return (row_sums(graph)[nodes] + 1).float().rsqrt()[:, None]


log = logging.getLogger(__name__)

# How far the classes of other tasks lie below those of the chosen one: e^-100 is no chance at all,
# and a float32 still tells them apart, for task-IL, where the task is known to be another.
APART = 100.0


@methods.register
class TPP(BackboneLearner):
    """Guesses each node's task, and asks that task's own head (after Niu et al. 2024).

    A task is remembered by its profile p_t = 1/n Σ_v d_v^-1/2 (Â^s X)_v over its training nodes,
    and by a head of its own, which no later task changes. The profile nearest to a node's own
    d_v^-1/2 (Â^s X)_v names the task, and the best class of that task is the answer. Nothing is
    forgotten but which task a node is of.

    The paper compares profiles of whole test sets: see ``tpp-per-test-set``. Its heads share a
    frozen, self-supervised GNN behind a prompt a task; ours are f_out of the backbone, made anew
    for every task. A class that comes back is known to several heads.

    Args:
        steps: s, how often features are smoothed for a profile.
        distance: ``angle``, or ``euclidean`` (the paper's), which for a single node tells its
            degree more than its task.
        backbone, trainer, generator: see ``BackboneLearner``.

    Attributes:
        profiles_: float32 [tasks, features]
        classes_: the classes of each task's head, ascending.  int64 [classes] each
        heads_: one per task.
    """

    name = "tpp"
    default_backbone = "pdgnn"
    backbone: PDGNN
    # Whether it is told which test nodes share a task: one task is guessed for all of them, by the
    # mean of their likenesses. In class-IL that gives away what other methods have to find out, so
    # accuracies are not comparable with theirs, nor with those of the same method node by node.
    pooled: ClassVar[bool] = False

    def __init__(
        self,
        *,
        steps: int = 2,
        distance: Distance = "angle",
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(backbone=backbone, trainer=trainer, generator=generator)
        check_integer("steps", steps, least=0)
        check_choice("distance", distance, DISTANCES)
        self.steps = steps
        self.distance: Distance = distance
        self.profiles_ = torch.empty(0, 0)
        self.classes_: list[Tensor] = []
        self.heads_: list[nn.Module] = []

    @classmethod
    def check_backbone(cls, backbone: Backbone) -> None:
        """Raise unless heads can be changed and the embeddings below them stay."""
        if not isinstance(backbone, PDGNN):
            raise ConfigurationError(
                f"{cls.name} gives every task a head on embeddings that never change: use "
                f"'pdgnn' or 'sgc', not {backbone.name!r}"
            )

    @property
    def sight(self) -> int | None:
        """As many hops as the backbone, or as a profile."""
        return max(self.backbone.hops, self.steps)

    def begin_task(self, task: Task) -> int:
        """Make a new head for the classes that the task has."""
        if self.pooled and not self.heads_:
            log.warning(
                "%s pools the test nodes of each task: do not compare its class-il accuracy with "
                "that of methods that classify node by node",
                self.name,
            )
        present = torch.cat([task.train_labels, torch.tensor([*task.label_space.newest()]).long()])
        self.classes_.append(present.unique())
        self.backbone.head = None
        self.trainer.restore({})  # Adam's moments are those of another head
        return super().begin_task(task)

    def examples(self, task: Task) -> Examples:
        """Return the task's training nodes, their classes numbered as in its head."""
        embeddings = self.backbone.taken(self.backbone.prepare(task.graph), task.train)
        targets = torch.searchsorted(self.classes_[-1], task.train_labels).to(self.device)
        space = LabelSpace("class-il", (len(self.classes_[-1]),))  # they all compete
        return make_examples(embeddings, None, targets, label_space=space)

    def end_task(self, task: Task) -> None:
        """Keep the head and the profile."""
        super().end_task(task)
        self._keep_head()
        nodes = task.train.to(self.device)
        new = self.profile(task.graph.to(self.device), nodes).cpu()
        self.profiles_ = torch.cat([self.profiles_.reshape(-1, len(new)), new[None]])

    @torch.no_grad()
    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the chosen head's scores; other classes lie 100 below.  -> [nodes, classes]

        Where several heads know a class that the chosen one does not, the surest counts. The scores
        are not brought to sum 1: how large they are tells how familiar a node is.
        """
        assert self.label_space_ is not None
        nodes = nodes.to(self.device)
        embeddings = self.backbone.taken(self.backbone.prepare(graph), nodes)
        chosen = self.guess_tasks(graph, nodes)[:, None]
        scores = embeddings.new_full((len(nodes), self.label_space_.num_classes), -2 * APART)
        level = embeddings.new_zeros(len(nodes), 1)
        for task, head in enumerate(self.heads_):
            own = _scores(head, embeddings)
            level = own.logsumexp(1, keepdim=True).where(chosen == task, level)
            columns = self.classes_[task].to(self.device)
            elsewhere = torch.maximum(scores[:, columns], own.log_softmax(1) - APART)
            scores[:, columns] = own.log_softmax(1).where(chosen == task, elsewhere)
        return scores + level

    def logits_of_exam(self, graph: Graph, nodes: Tensor, tasks: Tensor | None) -> Tensor:
        """Return the scores; if ``pooled``, of the nodes of each task together, or of all."""
        if not self.pooled or tasks is None or not len(nodes):
            return self.logits(graph, nodes)
        rows = [(tasks == task).nonzero().flatten() for task in tasks.unique()]
        scores = torch.cat([self.logits(graph, nodes[r]) for r in rows])
        return scores[torch.cat(rows).argsort().to(scores.device)]

    def guess_tasks(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the task whose profile is nearest to each node.  [nodes] -> int64 [nodes]"""
        profiles, alike = self.profiles_.to(self.device), self.likeness(graph, nodes)
        if self.pooled:
            alike = alike.mean(0, keepdim=True).expand(len(nodes), -1)
        return nearest(alike, profiles, distance=self.distance)

    def profile(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return what some nodes look like together.  int64 [n] -> float32 [features]"""
        return profile(graph, nodes, steps=self.steps)

    def likeness(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return ⟨profile of each node, profile of each task⟩.  -> [nodes, tasks]"""
        profiles = self.profiles_.to(self.device)
        return likeness(graph.to(self.device), nodes.to(self.device), profiles, steps=self.steps)

    @property
    def usage(self) -> MemoryUsage:
        """The profiles, and the heads of earlier tasks."""
        old = [p for head in self.heads_[:-1] for p in head.parameters()]
        return MemoryUsage(
            samples=self.profiles_.numel(),
            models=sum(p.numel() for p in old),
            bytes=sum(t.nbytes for t in (self.profiles_, *self.classes_, *old)),
        )

    def state(self) -> dict[str, Tensor]:
        """Return all that later tasks depend on, as named CPU tensors."""
        state = super().state() | {"profiles": self.profiles_}
        state |= {f"classes.{task}": classes for task, classes in enumerate(self.classes_)}
        for task, head in enumerate(self.heads_[:-1]):  # the last one is the backbone's
            state |= {f"heads.{task}.{k}": v.cpu() for k, v in head.state_dict().items()}
        return state

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        """Take back what ``state`` returned, at the point where it was taken."""
        self.profiles_ = state["profiles"]
        self.classes_, self.heads_ = [], []
        for task in range(len(self.profiles_)):
            self.classes_.append(state[f"classes.{task}"])
            self.backbone.head = None
            self._make_room(int(state["dims"]), label_space.num_classes)
            self._keep_head()
        for task, head in enumerate(self.heads_[:-1]):
            head.load_state_dict(part_of(state, f"heads.{task}."))
        super().restore(state, label_space)

    def _make_room(self, dims: int, classes: int) -> None:
        super()._make_room(dims, len(self.classes_[-1]))

    def _keep_head(self) -> None:
        assert self.backbone.head is not None
        self.heads_.append(self.backbone.head.eval())


@methods.register
class TPPPerTestSet(TPP):
    """``tpp`` told which test nodes share a task, as its paper tests (Niu et al. 2024).

    Not comparable in class-IL, see ``pooled``.

    Args:
        steps, distance, backbone, trainer, generator: see ``TPP``.
    """

    name = "tpp-per-test-set"
    pooled = True


def _scores(head: nn.Module, embeddings: Tensor) -> Tensor:
    """Return a head's scores, part by part as PDGNN does.  [n, dims] -> [n, classes]"""
    return torch.cat([head(part) for part in embeddings.split(PREDICT_ROWS)])
