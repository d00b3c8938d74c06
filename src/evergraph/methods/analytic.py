"""A head solved in closed form from statistics that no later task overwrites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.kept_nodes import LearnedNodes, LedgerEntries, ids_holding
from evergraph.closed_form.ridge import balanced_ridge, choose_regularisation
from evergraph.closed_form.statistics import FeatureMap, count_views
from evergraph.closed_form.target_heads import (
    choose_target_regularisation,
    fitted_sigmoid,
    target_ridge,
)
from evergraph.closed_form.targets import TargetStatistics
from evergraph.core.component import Made, choice
from evergraph.core.errors import ConfigurationError, check_number
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph
from evergraph.memory import MemoryUsage
from evergraph.methods.base import WEIGHTS, Weights, WholeTaskLearner, class_weights, methods
from evergraph.methods.refresh import (
    REFRESHES,
    Drift,
    GrowingEmbeddings,
    Refresh,
    drift_map,
    seen_drift,
)
from evergraph.nn import Backbone, RandomFeatures
from evergraph.streams import Task
from evergraph.training.learner import part_of

Statistics = ClassStatistics | TargetStatistics
LADDER = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
# λ is chosen on the first features alone: a thousandth of the cost of the full width.
CHOICE_WIDTH = 1024
# Scores of a least-squares head lie between 0 and 1; a softmax needs them multiplied by this.
SHARPNESS = 10.0


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class Analytic(WholeTaskLearner):
    """Ridge regression on random features of the embeddings, from statistics of all tasks so far.

    V = (A + λI)⁻¹ M, with A and M the class-balanced Gram matrix and class means of φ(e) over
    every node seen (see ``ClassStatistics`` and ``balanced_ridge``). f_topo and φ have no trained
    parameters, so the statistics never go stale: V equals the head of joint training on everything
    seen, whatever the order of tasks. No node is stored.

    Multi-label and regression targets use the same regression with equal node weights, one column
    per target, fitted on the nodes where that target is known (see ``TargetStatistics`` and
    ``target_ridge``). Regression targets are centred by sums, which gives the head an intercept.
    Scores of labels become probabilities by a sigmoid fitted on validation nodes (see
    ``fitted_sigmoid``), or by a fixed one if ``regularisation`` is a number and validation nodes
    are not used. Sums are kept in float64: 4 m² bytes for each combination of known targets, and
    the same again for validation nodes of multi-label data.

    Related: analytic class-incremental learning (Zhuang et al., NeurIPS 2022) and RanPAC
    (McDonnell et al., NeurIPS 2023), both on frozen vision models.

    Args:
        regularisation: λ as a share of A's mean diagonal, or ``validation``: the candidate with
            the least squared error on the validation nodes of all tasks so far, computed from
            their statistics in closed form.
        weights: ``class-sizes`` weighs a node by one over the labelled nodes of its class on
            arrival: exactly class-balanced if classes arrive whole. ``equal`` weighs all nodes
            alike and balances class means only: a little less accurate, but exact under merging,
            forgetting and returning classes.
        ledger: whether to record the learned nodes with class and weight (20 bytes each);
            ``forget`` and ``refresh="embeddings"`` need it.
        refresh: ``none``: earlier nodes keep their old embeddings. ``embeddings``: the graph is
            still available; nodes whose ego-subnetwork has changed are removed from the statistics
            and added with their new embedding. ``corrected``: no old node is read; statistics are
            moved by the drift observed in the new nodes' ego-subnetworks (see ``drift_map``), an
            estimate.
        backbone: ``RandomFeatures``; its ``width`` m sets memory (2 m² bytes) and accuracy.
        trainer, generator: see ``BackboneLearner``; nothing is trained, only the device is used.
    """

    name = "analytic"
    kinds: ClassVar[tuple[str, ...]] = ("class", "labels", "numbers")
    default_backbone = "random-features"
    needs: ClassVar[tuple[type[Backbone], str]] = (
        RandomFeatures,
        "solves for a head on fixed random features: use backbone 'random-features'",
    )
    backbone: Made[RandomFeatures] = Made()
    regularisation: float | Literal["validation"] = "validation"
    weights: Weights = choice("class-sizes", WEIGHTS)
    ledger: bool = False
    refresh: Refresh = choice("none", REFRESHES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.regularisation != "validation":
            check_number("regularisation", self.regularisation, least=0.0)
        self.ledger = self.ledger or self.refresh == "embeddings"
        width, device = self.backbone.width, self.device
        self.statistics_: Statistics = ClassStatistics(width, device=device)
        self.validation_: Statistics = ClassStatistics(min(width, CHOICE_WIDTH), device=device)
        self.answers_: tuple[Tensor, Tensor] | None = None  # scale and shift of target scores
        self.ledger_ = LearnedNodes()
        self.growing_ = GrowingEmbeddings()
        self._regularisation = 0.0
        self._solved = True  # whether the head matches the statistics
        # Calling the model directly also solves the head first.
        self.backbone.register_forward_pre_hook(lambda *_: self.solve())

    @torch.no_grad()
    def fit_task(self, task: Task) -> None:
        """Add the task's nodes to the statistics; the head is solved at the first prediction."""
        self.label_space_ = task.label_space
        self._take_targets(task.label_space)
        if self.refresh == "embeddings":
            self._recount(task)
        elif self.refresh == "corrected":
            self._correct(task)
        embeddings = self.backbone.prepare(task.graph)
        first = not self.backbone.begun
        self._make_room(embeddings.shape[1], task.label_space.num_classes)
        if first:
            self.backbone.settle(embeddings)
        self._learn(task, embeddings, "train")
        if self.regularisation == "validation":
            self._learn(task, embeddings, "validation")
        self._solved = False

    def _take_targets(self, space: LabelSpace) -> None:
        """Switch to target statistics at the first task if nodes have targets, not classes."""
        if space.target.is_class or isinstance(self.statistics_, TargetStatistics):
            return
        targets, width = space.num_classes, self.backbone.width
        self.statistics_ = TargetStatistics(width, targets=targets, device=self.device)
        # Validation labels keep the full width, since the sigmoid is fitted on them too.
        narrow = width if space.target.is_named else min(width, CHOICE_WIDTH)
        self.validation_ = TargetStatistics(narrow, targets=targets, device=self.device)

    @torch.no_grad()
    def solve(self) -> None:
        """Update the head from the statistics if they have changed since it was last solved.

        Predictions, ``state`` and calls of the model do this themselves. Call it before reading
        ``backbone.head``.
        """
        if self._solved:
            return
        assert self.label_space_ is not None
        self.statistics_.grow(self.label_space_.num_classes)
        self._regularisation = self._chosen()
        self._set_head(self._regularisation)
        self._solved = True

    def _set_head(self, regularisation: float) -> None:
        assert self.backbone.head is not None
        if isinstance(self.statistics_, TargetStatistics):
            head = target_ridge(self.statistics_, regularisation, centred=self._centred)
            scale, shift = torch.ones_like(head.offsets), head.offsets
            if not self._centred:
                assert isinstance(self.validation_, TargetStatistics)
                scale, shift = fitted_sigmoid(self.validation_, head)
            self.answers_ = scale.float(), shift.float()
            weights = head.weights
        else:
            weights = balanced_ridge(self.statistics_, regularisation)
        self.backbone.head.weight.data = weights.t().float().contiguous()

    @property
    def _centred(self) -> bool:
        """Whether targets are numbers, for which the head needs an intercept."""
        return not self._check_learned().target.is_named

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        self.solve()
        yield from super().modules()

    @property
    def regularisation_(self) -> float:
        """λ of the head, as a share of A's mean diagonal."""
        self.solve()
        return self._regularisation

    def _chosen(self) -> float:
        if self.regularisation != "validation":
            return self.regularisation
        training, validation = self.statistics_, self.validation_
        if isinstance(training, ClassStatistics) and isinstance(validation, ClassStatistics):
            return choose_regularisation(training, validation, LADDER)
        assert isinstance(training, TargetStatistics)
        assert isinstance(validation, TargetStatistics)
        narrow = validation.narrowed(min(validation.width, CHOICE_WIDTH))
        return choose_target_regularisation(training, narrow, LADDER, centred=self._centred)

    def _learn(self, task: Task, embeddings: Tensor, part: str) -> None:
        nodes, answers = getattr(task, part), getattr(task, f"{part}_targets")
        if answers is None:
            answers = getattr(task, f"{part}_labels")
            weights = class_weights(task, sized=self.weights == "class-sizes")[answers]
        else:
            weights = torch.ones(len(answers))
        self._count(part, self.backbone.taken(embeddings, nodes), answers, weights)
        if self.ledger:
            self.ledger_.enter(LedgerEntries(task.ids[nodes], answers, weights), part)

    def _count(
        self, part: str, rows: Tensor, labels: Tensor, weights: Tensor, *, sign: int = 1
    ) -> None:
        """Add nodes to the statistics of a part, or remove them if the sign is -1.

        rows: their embeddings.  [n, dims]; labels: or targets
        """
        (counted,) = count_views(
            [self._statistics_of(part)],
            rows,
            labels.to(self.device),
            weights.to(self.device),
            expand=self._expansion(part),
            resources=self.resources,
            sign=sign,
        )
        if part == "train":
            self.statistics_ = counted
        else:
            self.validation_ = counted

    def _statistics_of(self, part: str) -> Statistics:
        return self.statistics_ if part == "train" else self.validation_

    def _expansion(self, part: str) -> FeatureMap:
        """Return φ at the width of a part's statistics."""
        return self.backbone.expansion().narrowed(self._statistics_of(part).width)

    def _correct(self, task: Task) -> None:
        """Move the statistics by the drift of the old nodes in sight."""
        drift = seen_drift(task, self.backbone)
        for part in ("train", "validation"):
            statistics = self._statistics_of(part)
            if drift is not None and len(statistics.mass_):
                expand = self._expansion(part)
                moved = Drift(expand(drift.before), expand(drift.after), drift.share)
                statistics.transform(drift_map(moved))

    def _recount(self, task: Task) -> None:
        """Replace nodes whose embedding has changed: remove the old vector, add the new one."""
        update = self.growing_.update(task, self.backbone)
        if update is None:
            return
        growth, before = update
        for part in ("train", "validation"):
            entries = self.ledger_.part(part)
            positions = torch.searchsorted(task.ids, entries.ids)
            changed = growth.changed[positions]
            rows = positions[changed]
            entries = entries.take(changed)
            for sign, embeddings in ((-1, before), (1, growth.embeddings)):
                vectors = self.backbone.taken(embeddings, rows)
                self._count(part, vectors, entries.labels, entries.weights, sign=sign)

    @torch.no_grad()
    def forget(self, ids: Tensor, graph: Graph, *, known_as: Tensor | None = None) -> None:
        """Remove nodes from everything learned, as if they had never been labelled.

        ids: the nodes to forget; graph: the graph in which they were last embedded; known_as: the
        id of each node of ``graph``, ascending, as in ``Task.ids``; 0, 1, 2, ... by default.
        """
        if not self.ledger:
            raise ConfigurationError("forget() needs ledger=True")
        if self.refresh == "corrected":
            raise ConfigurationError(
                "forget() is exact and cannot undo estimated corrections: refresh must be 'none' "
                "or 'embeddings', not 'corrected'"
            )
        self._check_learned()
        known_as = ids_holding(ids, graph, known_as)
        embeddings = self.backbone.prepare(graph)
        for part, entries in self.ledger_.strike(ids).items():
            rows = torch.searchsorted(known_as, entries.ids).to(self.device)
            vectors = self.backbone.taken(embeddings, rows)
            self._count(part, vectors, entries.labels, entries.weights, sign=-1)
        self._solved = False

    @torch.no_grad()
    def merge(self, other: Analytic, *, classes: Tensor | None = None) -> None:
        """Add everything that another learner has learned, without its data.

        Both must compute the same features: the same topology, seed, width and activation, and
        no centring.

        classes: this learner's class for each class of the other; the same numbers by default.
        """
        label_space, theirs = self._check_learned(), other._check_learned()
        if type(self) is not type(other) or not self.backbone.expands_like(other.backbone):
            raise ConfigurationError(
                "merge() needs a learner of the same method with the same features: give both the "
                "same topology, seed, width and activation, and do not centre them"
            )
        if (label_space.kind, label_space.names) != (theirs.kind, theirs.names):
            raise ConfigurationError(
                "merge() needs two learners of classes or of the same targets, not "
                f"{label_space.kind} and {theirs.kind}"
            )
        # Statistics of the same kind, as the label spaces are.
        self.statistics_ = self.statistics_.merged(other.statistics_, classes)  # type: ignore[arg-type]
        self.validation_ = self.validation_.merged(other.validation_, classes)  # type: ignore[arg-type]
        total = self.statistics_.num_classes
        self.label_space_ = label_space.joined(theirs, classes, total=total)
        self._make_room(self._dims, self.label_space_.num_classes)
        self.ledger_.copy_from(other.ledger_, classes)
        self._solved = False

    @torch.no_grad()
    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the scores of all classes learned so far.  -> [nodes, classes]

        Log-odds for multi-label targets, values for regression.  -> [nodes, targets]
        """
        scores = super().logits(graph, nodes)
        if self.answers_ is None:
            return scores.mul_(SHARPNESS)
        scale, shift = (part.to(scores.device) for part in self.answers_)
        return scores.mul_(scale).add_(shift)

    def novelty(self, graph: Graph, nodes: Tensor, *, logits: Tensor | None = None) -> Tensor:
        """Return 1 minus the best score, since scores here estimate probabilities."""
        if not self._check_learned().target.is_class:
            raise ConfigurationError("novelty needs nodes with classes, not targets")
        scores = self.logits(graph, nodes) if logits is None else logits
        return 1 - scores.amax(dim=1) / SHARPNESS

    @property
    def recomputed(self) -> tuple[int, int] | None:
        return self.growing_.cost if self.refresh == "embeddings" else None

    @property
    def usage(self) -> MemoryUsage:
        usage = self.statistics_.usage + MemoryUsage(bytes=self.ledger_.nbytes)
        return usage + self.validation_.usage if self.regularisation == "validation" else usage

    @property
    def parts(self) -> dict[str, Any]:
        parts = super().parts | {"statistics": self.statistics_, "ledger": self.ledger_}
        if self.regularisation == "validation":
            parts["validation"] = self.validation_
        return parts | {"refreshed": self.growing_}

    def state(self) -> dict[str, Tensor]:
        self.solve()
        state = super().state()
        if self.answers_ is not None:
            scale, shift = self.answers_
            state |= {"answers.scale": scale.cpu(), "answers.shift": shift.cpu()}
        return state

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        self._take_targets(label_space)
        super().restore(state, label_space)
        answers = part_of(state, "answers.")
        self.answers_ = (answers["scale"], answers["shift"]) if answers else None
        self._solved = True
