"""Ridge regression on several views of a node: maps, sums, penalties and a mixture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evergraph.closed_form.fusing import (
    LEAD,
    Answers,
    Fused,
    fused_weights,
    lead_over_chance,
    mixture_loss,
)
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.leave_one_out import Sample, choose_penalty, left_out_scores
from evergraph.closed_form.ridge import LADDER, RidgeProblem, RidgeSolution, choose_regularisation
from evergraph.closed_form.statistics import ClassStatistics, count_views
from evergraph.closed_form.view_map import RandomMap, rows_that_differ
from evergraph.closed_form.views import View, ViewRows
from evergraph.core.errors import DataError
from evergraph.core.resources import Resources
from evergraph.training.learner import part_of

# A penalty is chosen on so many features and nodes: cheap at any width, see decision 90.
CHOICE_WIDTH, CHOICE_NODES = 512, 512
# Penalties are chosen again when there are so many times as many nodes as when they were chosen,
# and with every change up to so many nodes.
GROWN, ALWAYS = 1.25, 256
# λ where there are no answers: every class has a single node.
UNKNOWN = 0.01


class ViewEngine:
    """s(x) = Σ_v a_v V_vᵀφ_v(x) + b from sums over nodes that are added, changed and removed.

    V_v = (A_v + λ_v P_v)⁻¹ M_v for every view v, with P = I for random features and P = K(Z, Z) for
    landmarks (``KernelMap``). λ_v is chosen from a ladder, and the weights a and intercepts b are
    fitted, on ``Answers``: nodes held back from the sums, or each predicted as if left out. All of
    it is a function of sums and of these nodes; λ is chosen again when something was removed, when
    the map has changed, or when the nodes have grown by a quarter.

    Args:
        balanced: whether all classes have equal weight, or all nodes.
        regularisation: λ as a share of its scale, if it is not to be chosen.
        precise: whether sums are in float64, see ``ClassStatistics``.
        resources: the workers that count many nodes.

    Attributes:
        map, sums_: φ of all views, and the sums of each.
        strengths_: λ of every view, relative to its scale.  float64 [views]
        fused_: a and b.
        heads_: a_v V_v of every view, in float64: landmarks that are nearly alike have weights of
            thousands that cancel.  [m, classes] each
        lead_: of the answers over chance, in standard errors; NaN if not known.
    """

    def __init__(
        self,
        *,
        balanced: bool = True,
        regularisation: float | None = None,
        precise: bool = True,
        resources: Resources | None = None,
    ) -> None:
        self.balanced, self.regularisation = balanced, regularisation
        self.precise, self.resources = precise, resources
        self.targets = 1  # values that are counted for a node
        self.sums_: list[ClassStatistics] = []
        self.solved, self.lead_ = True, math.nan

    def begin(self, features: RandomMap | KernelMap, *, classes: int = 0) -> None:
        """Compute features by this map from now on; sums are empty, with room for classes."""
        views = features.views
        self.map: RandomMap | KernelMap = features
        views_before = len(self.sums_)
        self.sums_ = [self._empty(features.width) for _ in views]
        if len(views) != views_before:
            nothing = torch.zeros(0, dtype=torch.float64)
            self.fused_ = Fused(nothing, nothing)
            self.heads_ = [nothing.new_zeros(features.width, 0) for _ in views]
        self.grow(classes)
        self.changed_map()

    def _empty(self, width: int) -> ClassStatistics:
        return ClassStatistics(width, precise=self.precise, device=self.map.device)

    def changed_map(self) -> None:
        """Forget what was computed with the map as it was."""
        self.strengths_ = torch.zeros(0, dtype=torch.float64)
        self._chosen_for = 0  # nodes when λ was chosen
        self._penalties: dict[View, Tensor] = {}
        # The vectors of the last answers, and φ of these by view.
        self._computed = torch.zeros(0, 0), torch.zeros(len(self.map.views), 0, self.map.width)
        self.solved = False

    @property
    def num_classes(self) -> int:
        """Number of classes there is room for."""
        return self.sums_[0].num_classes

    @property
    def nodes(self) -> int:
        """Number of nodes counted."""
        return int(self.sums_[0].counts_.sum())

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        self.solved &= classes <= self.num_classes
        for sums in self.sums_:
            sums.grow(classes)

    def count(
        self,
        rows: Tensor | ViewRows,
        labels: Tensor,
        sign: int = 1,
        *,
        weights: Tensor | None = None,
    ) -> None:
        """Add nodes to the sums, or remove them if the sign is -1.

        rows: float32 [n, dims], or rows of the views; weights: 1 by default.  float32 [n]
        """
        if not len(labels):
            return
        weights = torch.ones(len(labels)) if weights is None else weights
        self.sums_ = count_views(
            self.sums_, rows, labels, weights, expand=self.map, resources=self.resources, sign=sign
        )
        if sign < 0:
            self.strengths_ = self.strengths_[:0]
            for sums in self.sums_:
                sums.clear_rounding()
        self.solved = False

    def exchange(
        self, before: Tensor, after: Tensor, labels: Tensor, *, weights: Tensor | None = None
    ) -> None:
        """Replace nodes in the sums of the views in which their vectors differ."""
        weights = torch.ones(len(labels)) if weights is None else weights
        for view, rows, old, new in self.map.changes(before, after):
            self.sums_[view].exchange(old, new, labels[rows], weights[rows])
        self.solved &= not len(labels)

    def merge(self, other: ViewEngine, classes: Tensor | None = None) -> None:
        """Add the sums of another engine with the same map.  classes: see ``ClassStatistics``"""
        pairs = zip(self.sums_, other.sums_, strict=True)
        self.sums_ = [sums.merged(others, classes) for sums, others in pairs]
        self.solved = False

    def clear(self) -> None:
        """Empty the sums."""
        for sums in self.sums_:
            sums.clear()
        self.strengths_ = self.strengths_[:0]
        self.solved = False

    def erase(self, places: Tensor) -> None:
        """Erase landmarks from the map, and their rows and columns from all sums."""
        assert isinstance(self.map, KernelMap)
        self.map = self.map.without(places)
        for sums in self.sums_:
            sums.erase(places)
        self.changed_map()

    def solve(self, answers: Answers) -> tuple[list[Tensor], Tensor]:
        """Set λ, a, b and a_v V_v from the sums and the answers.

        -> V of every view, [m, classes] each, and their scores of answers, [n, classes, views]
        """
        if answers.held_back:
            heads, scores = self._by_answers_held_back(answers)
        else:
            heads, scores = self._by_nodes_left_out(answers)
        # A far view shows which subgraph a node is in. That is useful where no labels are shown, and
        # misleading where they are: class codes show more, and subgraphs may have been joined since.
        near = [index for index, view in enumerate(self.map.views) if not view.is_far]
        self.fused_ = self.mixture(scores, answers, near or range(len(heads)))
        mixed = zip(heads, self.fused_.weights, strict=True)
        self.heads_ = [(head.double() * share).contiguous() for head, share in mixed]
        self.solved = True
        self.lead_ = math.nan if answers.held_back else self._lead(scores, answers)
        return heads, scores

    def _by_answers_held_back(self, answers: Answers) -> tuple[list[Tensor], Tensor]:
        """Return V of all views and scores, with λ chosen by answers that were held back."""
        assert isinstance(answers.rows, ViewRows)
        self.strengths_ = torch.full((len(self.sums_),), UNKNOWN, dtype=torch.float64)
        if len(answers.labels):
            self.strengths_ = self._strengths_by(answers)
        heads = [self.solution(view).weights.float() for view in range(len(self.sums_))]
        return heads, self.map.scores_of(answers.rows, heads)

    def _strengths_by(self, answers: Answers) -> Tensor:
        """Return λ of all views, chosen with the first features alone.  -> float64 [views]"""
        first = self.map.narrowed(min(CHOICE_WIDTH, self.map.width))
        labels = answers.labels.to(self.map.device)
        class_sizes = torch.bincount(labels).float()[labels]
        weights = class_sizes.reciprocal() if self.balanced else torch.ones_like(class_sizes)
        validation_sums = count_views(
            [self._empty(first.width) for _ in self.sums_],
            answers.rows,
            labels,
            weights,
            expand=first,
            resources=self.resources,
        )
        chosen = []
        for view, sums, validation in zip(self.map.views, self.sums_, validation_sums, strict=True):
            options: dict[str, Any] = {"balanced": self.balanced, "penalty": self.penalty(view)}
            strength = choose_regularisation(sums, validation, LADDER, **options)
            # With m features instead of n, a score is shrunk as much by m/n times the λ.
            # Landmarks take the same factor, as measured in decision 90.
            chosen.append(strength * (sums.width / first.width))
        return torch.tensor(chosen, dtype=torch.float64)

    def _by_nodes_left_out(self, answers: Answers) -> tuple[list[Tensor], Tensor]:
        """Return V of all views and scores, with λ chosen by nodes that are left out in turn."""
        samples, nodes = self._samples(answers), self.nodes
        if not len(self.strengths_) or nodes > GROWN * self._chosen_for or nodes <= ALWAYS:
            chosen = [self._strength(view, sample) for view, sample in enumerate(samples)]
            self.strengths_ = torch.tensor(chosen, dtype=torch.float64)
            self._chosen_for = nodes
        solved = [self._solved(view, sample) for view, sample in enumerate(samples)]
        return [head for head, _ in solved], torch.stack([scores for _, scores in solved], 2)

    def _samples(self, answers: Answers) -> list[Sample]:
        """Return φ of the nodes left out, by view; unchanged rows are not computed again."""
        known_vectors, features = self._computed
        vectors = answers.rows
        assert isinstance(vectors, Tensor)
        assert answers.landmarks is not None
        if known_vectors.shape == vectors.shape:
            changed = rows_that_differ(known_vectors, vectors).nonzero().flatten()
        else:
            features = torch.empty(len(self.map.views), len(vectors), self.map.width)
            changed = torch.arange(len(vectors))
        features[:, changed] = self.map.of_vectors(vectors[changed])
        self._computed = vectors, features
        weights = torch.ones(len(vectors)) if answers.weights is None else answers.weights
        return [
            Sample(of_view.double(), answers.labels, weights.double(), answers.landmarks)
            for of_view in features
        ]

    def _strength(self, view: int, sample: Sample) -> float:
        """Return λ of a view relative to its scale, see ``choose_penalty``.

        Chosen with the first features alone; with m instead of n of them, a score is shrunk as much
        by m/n times the λ.
        """
        if self.regularisation is not None:
            return self.regularisation
        if not len(sample):
            return UNKNOWN
        sums, penalty = self.sums_[view], self.penalty(self.map.views[view])
        width = min(CHOICE_WIDTH, sums.width)
        penalty = None if penalty is None else penalty[:width, :width]
        narrow = sums.narrowed(width)
        return self._choice(narrow, sample.first(CHOICE_NODES, width), penalty) * sums.width / width

    def _choice(self, sums: ClassStatistics, sample: Sample, penalty: Tensor | None) -> float:
        """Return the value of the ladder with which nodes left out are predicted best."""
        scale = RidgeProblem.of(sums, balanced=self.balanced).scale(penalty)
        penalties = [scale * value for value in LADDER]
        chosen = choose_penalty(sums, sample, penalties, balanced=self.balanced, penalty=penalty)
        return chosen / scale

    def _solved(self, view: int, sample: Sample) -> tuple[Tensor, Tensor]:
        """Return V of a view, and the scores of nodes left out.  -> [m, classes], [n, classes]"""
        solution, masses = self.solution(view), self.sums_[view].mass_
        scores = left_out_scores(solution, sample, masses, balanced=self.balanced)
        return solution.weights, scores

    def solution(self, view: int) -> RidgeSolution:
        """Return V of a view with what leaving nodes out needs."""
        problem = RidgeProblem.of(self.sums_[view], balanced=self.balanced)
        return problem.solution(float(self.strengths_[view]), self.penalty(self.map.views[view]))

    def penalty(self, view: View) -> Tensor | None:
        """Return P of a view; None for the identity.  [m, m]"""
        if not isinstance(self.map, KernelMap):
            return None
        if not self._penalties:
            self._penalties = self.map.penalties()
        return self._penalties[view]

    def mixture(self, scores: Tensor, answers: Answers, views: Sequence[int]) -> Fused:
        """Return weights of some views, 0 for others, and intercepts if nodes were left out.

        scores: of the answers, by the views here or by other heads.  [n, classes, views]
        """
        chosen, total = list(views), scores.shape[2]
        if not chosen:
            nothing = torch.zeros(total, dtype=torch.float64, device=scores.device)
            return Fused(nothing, nothing[:0])
        last = self.fused_.weights
        near = last if not answers.held_back and len(last) == len(chosen) else None
        scores, labels, allowed = answers.asked(scores, self.sums_[0].counts_)
        fitted = fused_weights(
            scores[:, :, chosen],
            labels,
            allowed=allowed,
            near=near,
            balanced=self.balanced,
            intercept=not answers.held_back,
        )
        weights = fitted.weights.new_zeros(total)
        weights[chosen] = fitted.weights
        return Fused(weights, fitted.offsets)

    def loss(self, scores: Tensor, answers: Answers, fused: Fused | None = None) -> float:
        """Return the loss of a mixture on the answers, its own by default; infinite without any."""
        if not len(answers.labels):
            return math.inf
        scores, labels, allowed = answers.asked(scores, self.sums_[0].counts_)
        return mixture_loss(
            scores, labels, fused or self.fused_, allowed=allowed, balanced=self.balanced
        )

    def _lead(self, scores: Tensor, answers: Answers) -> float:
        """Return by how much nodes left out are predicted better than by chance."""
        scores, labels, allowed = answers.asked(scores, self.sums_[0].counts_)
        mixed = scores @ self.fused_.weights + self.fused_.offsets
        if allowed is not None:
            mixed.masked_fill_(~allowed, -math.inf)
        classes, inverse = labels.unique(return_inverse=True)
        right = mixed[:0, :0]  # of a single class, nothing can be better than chance
        if len(classes) > 1:
            right = torch.nn.functional.one_hot(inverse, len(classes))
        return lead_over_chance(mixed.softmax(1)[: len(right), classes], right)

    @property
    def better_than_chance(self) -> bool | None:
        """Whether nodes left out are predicted better than by chance; None if that is not known."""
        return None if math.isnan(self.lead_) else self.lead_ > LEAD

    @property
    def nbytes(self) -> int:
        """Number of bytes kept; of every symmetric G only half, as in ``state``."""
        of_sums = sum(sums.usage.bytes for sums in self.sums_)
        return of_sums + sum(head.nbytes for head in self.heads_)

    def state(self) -> dict[str, Tensor]:
        """Return sums, λ, a, b, a_v V_v, and whether these are up to date, without the map."""
        state = {
            "mixture": self.fused_.weights,
            "offsets": self.fused_.offsets,
            "strengths": self.strengths_,
            "chosen_for": torch.tensor(self._chosen_for),
            "solved": torch.tensor(self.solved),
            "lead": torch.tensor([] if math.isnan(self.lead_) else [self.lead_]),
        }
        for place, sums in enumerate(self.sums_):
            state |= {f"view_{place}.{name}": value for name, value in sums.state().items()}
            state[f"view_{place}.weights"] = self.heads_[place]
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned, after ``begin`` with the same map."""
        self.fused_ = Fused(state["mixture"], state["offsets"])
        self.strengths_ = state["strengths"]
        self._chosen_for, self.solved = int(state["chosen_for"]), bool(state["solved"])
        self.lead_ = float(state["lead"][0]) if len(state["lead"]) else math.nan
        for place, sums in enumerate(self.sums_):
            view_state = part_of(state, f"view_{place}.")
            head = view_state.pop("weights")
            if len(head) != self.map.width:
                raise DataError(
                    f"weights of view {place} must have {self.map.width} rows, not {len(head)}"
                )
            self.heads_[place] = head.double()
            sums.restore(view_state)
