"""Predict a node's task, then its class with that task's head: TPP and TAAM."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from evergraph.core.component import Made, choice, integer, number
from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph, propagate
from evergraph.graphs.kernels.scaled_rows import row_sums
from evergraph.memory import MemoryUsage
from evergraph.methods.base import BackboneLearner, methods
from evergraph.methods.examples import Examples, make_examples
from evergraph.nn import PDGNN, Modulated
from evergraph.nn.pdgnn import PREDICT_ROWS
from evergraph.streams import Task
from evergraph.topology import APPNP, SGC, TopologyEncoder
from evergraph.training.learner import part_of

Distance = Literal["angle", "euclidean"]
DISTANCES = ("angle", "euclidean")


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


log = logging.getLogger(__name__)

# How far the scores of other tasks' classes lie below those of the chosen task: e^-100 leaves no
# chance, while float32 still separates them for task-IL, where the true task may be another one.
APART = 100.0


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class TPP(BackboneLearner):
    """Predicts each node's task, then its class with that task's head (after Niu et al. 2024).

    A task is stored as its profile p_t = 1/n Σ_v d_v^-1/2 (Â^s X)_v over its training nodes and as
    its own head, which no later task changes. The task is that of the profile nearest to a node's
    own d_v^-1/2 (Â^s X)_v, and the prediction is the best class of that task. Only the choice of
    the task can get worse over time.

    The paper compares profiles of whole test sets: see ``tpp-per-test-set``. Its heads share a
    frozen, self-supervised GNN with one prompt per task; here each task has a new f_out of the
    backbone. A class that returns is known to several heads.

    Args:
        steps: s, the number of smoothing steps for a profile.
        distance: ``angle``, or ``euclidean`` (the paper's), which for a single node depends more on
            its degree than on its task.

    Attributes:
        profiles_: float32 [tasks, features]
        classes_: the classes of each task's head, ascending.  int64 [classes] each
        heads_: one per task.
    """

    name = "tpp"
    default_backbone = "pdgnn"
    needs = PDGNN, "gives every task a head on embeddings that never change: use 'pdgnn' or 'sgc'"
    # If true, one task is predicted for all test nodes of a task, by the mean of their likenesses.
    # In class-IL this reveals which nodes share a task, so accuracies are not comparable with those
    # of other methods, nor with those of the same method node by node.
    pooled: ClassVar[bool] = False
    follows_objective = False
    carries_moments = False

    backbone: Made[PDGNN] = Made()
    steps: int = integer(2, least=0)
    distance: Distance = choice("angle", DISTANCES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trainer.patience:
            raise ConfigurationError(
                f"{self.name} can be validated only when a task has ended: patience must be 0, not "
                f"{self.trainer.patience}"
            )
        self.profiles_ = torch.empty(0, 0)
        self.classes_: list[Tensor] = []
        self.heads_: list[nn.Module] = []

    @property
    def sight(self) -> int | None:
        """The larger number of hops, of the backbone or of a profile."""
        return max(self.backbone.hops, self.steps)

    def begin_task(self, task: Task) -> int:
        if self.pooled and not self.heads_:
            log.warning(
                "%s pools the test nodes of each task: do not compare its class-il accuracy with "
                "that of methods that classify node by node",
                self.name,
            )
        present = torch.cat([task.train_labels, torch.tensor([*task.label_space.newest()]).long()])
        self.classes_.append(present.unique())
        self.backbone.head = None
        self.trainer.restore({})  # Adam's moments belong to another head
        return super().begin_task(task)

    def examples(self, task: Task) -> Examples:
        """Return the task's training nodes, their classes numbered as in its head."""
        embeddings = self.backbone.taken(self.backbone.prepare(task.graph), task.train)
        targets = torch.searchsorted(self.classes_[-1], task.train_labels).to(self.device)
        space = LabelSpace("class-il", (len(self.classes_[-1]),))  # they all compete
        return make_examples(embeddings, None, targets, label_space=space)

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        self._keep_head()
        nodes = task.train.to(self.device)
        new = self.profile(task.graph.to(self.device), nodes).cpu()
        self.profiles_ = torch.cat([self.profiles_.reshape(-1, len(new)), new[None]])

    @torch.no_grad()
    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the chosen head's scores; other classes lie 100 below.  -> [nodes, classes]

        If several heads know a class that the chosen one does not, the highest score counts. Scores
        are not normalised: their size shows how familiar a node is.
        """
        assert self.label_space_ is not None
        nodes = nodes.to(self.device)
        embeddings = self.backbone.taken(self.backbone.prepare(graph), nodes)
        chosen = self.guess_tasks(graph, nodes)[:, None]
        scores = embeddings.new_full((len(nodes), self.label_space_.num_classes), -2 * APART)
        level = embeddings.new_zeros(len(nodes), 1)
        for task, head in enumerate(self.heads_):
            task_scores = torch.cat([head(part) for part in embeddings.split(PREDICT_ROWS)])
            level = task_scores.logsumexp(1, keepdim=True).where(chosen == task, level)
            columns = self.classes_[task].to(self.device)
            elsewhere = torch.maximum(scores[:, columns], task_scores.log_softmax(1) - APART)
            scores[:, columns] = task_scores.log_softmax(1).where(chosen == task, elsewhere)
        return scores + level

    def logits_of_exam(self, graph: Graph, nodes: Tensor, tasks: Tensor | None) -> Tensor:
        """Return the scores; if ``pooled``, with one predicted task per true task, or for all."""
        if not self.pooled or tasks is None or not len(nodes):
            return self.logits(graph, nodes)
        rows = [(tasks == task).nonzero().flatten() for task in tasks.unique()]
        scores = torch.cat([self.logits(graph, nodes[r]) for r in rows])
        return scores[torch.cat(rows).argsort().to(scores.device)]

    def guess_tasks(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the task whose profile is nearest to each node.  [nodes] -> int64 [nodes]"""
        profiles, likenesses = self.profiles_.to(self.device), self.likeness(graph, nodes)
        if self.pooled:
            likenesses = likenesses.mean(0, keepdim=True).expand(len(nodes), -1)
        return nearest(likenesses, profiles, distance=self.distance)

    @property
    def smoothing(self) -> TopologyEncoder:
        """The map from features to profiles, before weights."""
        return SGC(hops=self.steps)

    def weights(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the weights of nodes, d_v^-1/2; d includes the node itself.  -> float32 [n, 1]"""
        return (row_sums(graph)[nodes] + 1).float().rsqrt()[:, None]

    def profile(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the common profile of some nodes.  int64 [n] -> float32 [features]

        >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[1.], [3.]]),
        ...                         labels=torch.tensor([0, 0]), undirected=True)
        >>> learner = TPP(steps=1, generator=torch.Generator())
        >>> learner.profile(pair, torch.tensor([0, 1]))  # smoothed to 2 and 2, d = 2
        tensor([1.4142])
        """
        return (self.weights(graph, nodes) * self.smoothing.encode(graph)[nodes]).mean(0)

    def likeness(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return ⟨profile of each node, profile of each task⟩.  -> [nodes, tasks]

        Smoothing is linear, so one column per task is smoothed instead of one per feature. The mean
        over several nodes is the likeness of their common profile.
        """
        graph, nodes = graph.to(self.device), nodes.to(self.device)
        columns = propagate(graph.features, self.profiles_.to(self.device).t().contiguous())
        projected = replace(graph.structure, features=columns)
        return self.weights(graph, nodes) * self.smoothing.encode(projected)[nodes]

    @property
    def usage(self) -> MemoryUsage:
        old = [p for head in self.heads_[:-1] for p in head.parameters()]
        return MemoryUsage(
            samples=self.profiles_.numel(),
            models=sum(p.numel() for p in old),
            bytes=sum(t.nbytes for t in (self.profiles_, *self.classes_, *old)),
        )

    def state(self) -> dict[str, Tensor]:
        state = super().state() | {"profiles": self.profiles_}
        state |= {f"classes.{task}": classes for task, classes in enumerate(self.classes_)}
        for task, head in enumerate(self.heads_[:-1]):  # the last one is the backbone's
            state |= {f"heads.{task}.{k}": v.cpu() for k, v in head.state_dict().items()}
        return state

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
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
        self.heads_.append(self.backbone.head.eval())  # type: ignore[union-attr]


@methods.register
class TPPPerTestSet(TPP):
    """``tpp`` with one task predicted per test set, as in the paper (Niu et al. 2024).

    Not comparable in class-IL, see ``pooled``.
    """

    name = "tpp-per-test-set"
    pooled = True


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class TAAM(TPP):
    """Predicts each node's task, then classifies with that task's modulation (Liu and Zhang 2026).

    The embedding Â^L X is frozen. Every task trains its own ``ModulatedHead`` on it (scales, shifts
    and classifier), which no later task changes. The task of a node is that of the nearest
    prototype p_t = 1/n Σ_v z_v over the task's training nodes, with z = Z_s of anchored propagation

        Z_0 = X,  Z_i = (1 - α) Â Z_{i-1} + α X.

    There are two variants, as for ``tpp``: the authors predict one task for a whole test set
    (``taam-per-test-set``); this class predicts it for each node. This implementation compares
    angles between a node and a prototype, and has one loss, weighted by class sizes.

    Args:
        steps: s, the number of propagation steps for a prototype.
        anchor: α, the share of a node's own features at every step.
        distance: ``angle`` or ``euclidean``, see ``TPP``.
        backbone: ``Modulated``.

    Attributes:
        profiles_: the prototypes.  float32 [tasks, features]

    >>> from evergraph.datasets import load
    >>> from evergraph.streams import GraphStream
    >>> from evergraph.training import Trainer
    >>> graph = load("synthetic", nodes=120, classes=4, features=8, seed=0)
    >>> learner = TAAM(trainer=Trainer(epochs=2), generator=torch.Generator())
    >>> for task in GraphStream(graph):
    ...     learner.fit_task(task)
    >>> learner.profiles_.shape, learner.logits(graph, torch.arange(3)).shape
    (torch.Size([2, 8]), torch.Size([3, 4]))
    """

    name = "taam"
    default_backbone = "modulated"
    needs = Modulated, "modulates frozen embeddings: use backbone 'modulated'"
    backbone: Made[Modulated] = Made()
    anchor: float = number(0.1, least=0.0, most=1.0)

    @property
    def smoothing(self) -> TopologyEncoder:
        return APPNP(hops=self.steps, alpha=self.anchor)

    def weights(self, graph: Graph, nodes: Tensor) -> Tensor:
        return torch.ones(len(nodes), 1, device=graph.device)


@methods.register
class TAAMPerTestSet(TAAM):
    """``taam`` with one task predicted per test set, as in the paper (Liu and Zhang 2026).

    Not comparable in class-IL, see ``TPP.pooled``.
    """

    name = "taam-per-test-set"
    pooled = True
