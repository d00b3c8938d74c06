"""Heads on a memory of embeddings: kernel ridge regression on some nodes of every class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evergraph.closed_form.kept_nodes import NodeSample, draw_order
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.views import FAR, View, ViewRows, hops_of

if TYPE_CHECKING:
    from evergraph.closed_form.engine import ViewEngine
    from evergraph.closed_form.fusing import Answers

# λ in question, relative to the kernel of a node with itself.
LADDER = (5.0, 1.0, 0.2, 0.04, 0.008, 0.0016)
# λ is chosen with at most so many of the nodes, which is cheap however many are kept. With more
# nodes than that, a stronger one is used: measured in decision 99.
CHOICE_NODES, STRONGER = 512, 2.0
# λ without any answer held back.
UNKNOWN = 0.1
# Share by which a memory must lower the loss on nodes held back, or it is not used: a few nodes each
# of many small classes add nothing to the sums, and cost as much time. With fewer nodes held back
# than this the loss is no evidence, and using the memory is the safer choice.
LEAST_GAIN, ENOUGH_ANSWERS = 0.01, 1024
# Added to K's diagonal, since two nodes may be equal up to rounding.
JITTER = 1e-6


def memory_views(views: Sequence[View]) -> tuple[View, ...]:
    """Return the views of heads on a memory, whose nodes have all parts of some views.

    All near parts with class codes, all parts without, a node's own features, and features two hops
    away, as far as the given views have them.

    >>> from evergraph.closed_form.views import parse_views
    >>> [str(view) for view in memory_views(parse_views(["0|1|2|4|r+y", "0|s", "32"]))]
    ['0|1|2|4|r|s+y', '0|1|2|4|32|r|s', '0|s', '2|r']
    >>> [str(view) for view in memory_views(parse_views(["2"]))]
    ['2']
    """
    hops = hops_of(views)
    coded = any(view.codes for view in views)
    related = any(view.related for view in views)
    shaped = any(view.shaped for view in views)
    uncoded = View(hops, related=related, shaped=shaped)
    near_hops = tuple(hop for hop in hops if hop <= FAR)
    chosen = []
    if coded:
        chosen.append(replace(uncoded, hops=near_hops, codes=True))
    chosen.append(uncoded)
    if 0 in hops:
        chosen.append(View((0,), shaped=shaped))
    if 2 in hops:
        chosen.append(View((2,), related=related))
    return tuple(dict.fromkeys(view for view in chosen if view.parts))


@dataclass(frozen=True, eq=False)
class MemoryHeads:
    """s_v(x) = α_vᵀ k_v(Z, x) for every view v, with the nodes Z of a memory.

    A memory of n embeddings a class is all that there is of the nodes of earlier tasks, so their
    kernel is used as it is: α = (K(Z, Z) + λ W⁻¹)⁻¹ Y minimises Σ_i w_i ‖y_i - s(z_i)‖² + λ ‖s‖²
    (Saunders et al. 1998). A kept node stands for all nodes of its class: its weight w is the
    weight of the class over the number of nodes that are kept of it.

    Attributes:
        map: k of every view.
        heads: α of every view.  float32 [kept, classes] each
        weights: a of every view, for nodes without and with class codes.  float64 [2, views]
    """

    map: KernelMap
    heads: Sequence[Tensor]
    weights: Tensor

    @classmethod
    def fitted(
        cls,
        kernels: KernelMap,
        labels: Tensor,
        rows: ViewRows,
        answers: Tensor,
        *,
        masses: Tensor,
        order: Tensor,
    ) -> tuple[MemoryHeads, Tensor]:
        """Return heads, and their scores of nodes that were held back.  -> [n, classes, views]

        λ is the one of ``LADDER`` with the least squared error on nodes held back, with the first
        ``CHOICE_NODES`` of the memory alone, times ``STRONGER`` if there are more.

        labels: of the memory.  int64 [kept]; rows, answers: of nodes held back, and their classes;
        masses: weight of every class, equal ones or their sizes.  float [classes];
        order: of the memory, a mixture of its classes.  int64 [kept]
        """
        labels, masses = labels.to(kernels.device), masses.to(kernels.device, torch.float64)
        few, views = order[:CHOICE_NODES].to(kernels.device), kernels.views
        parts = {part: kernels.landmarks[part] for part in kernels.needed(*views)}
        projected_memory = kernels.projected(parts)
        projected_answers = [kernels.projected_rows(block, views) for block in kernels.blocks(rows)]
        heads, scores = [], []
        for view in views:
            gram = kernels.features(view, projected_memory)
            blocks = [kernels.features(view, block) for block in projected_answers]
            values = torch.cat([gram[:0], *blocks])
            strength = UNKNOWN
            if len(answers):
                strength = chosen_strength(
                    gram[few][:, few], values[:, few], labels[few], answers, masses
                )
                strength *= STRONGER if len(labels) > CHOICE_NODES else 1.0
            head = kernel_ridge(gram, labels, masses, strength=strength)
            heads.append(head)
            scores.append(values @ head)
        equal = torch.ones(2, len(views), dtype=torch.float64)
        return cls(kernels, heads, equal), torch.stack(scores, 2)

    def used(self, *, coded: bool) -> dict[View, Tensor]:
        """Return a_v α_vᵀ of views that have weight, for nodes with or without class codes."""
        weights = self.weights[int(coded)].tolist()
        views = zip(self.map.views, self.heads, weights, strict=True)
        return {view: weight * head.t() for view, head, weight in views if weight}

    def add_scores(self, scores: Tensor, rows: ViewRows) -> Tensor:
        """Return scores plus Σ_v a_v s_v.  [n, classes]"""
        return self.map.add_scores(scores, rows, self.used(coded=rows.codes is not None))


class NodeMemory(NodeSample):
    """Training nodes of every class, and heads on them beside those of an engine.

    Attributes:
        heads: None before they are solved for, and if no node is kept.
    """

    def clear(self) -> None:
        super().clear()
        self.heads: MemoryHeads | None = None

    def solve(
        self,
        kernels: Callable[[ViewRows], KernelMap],
        engine: ViewEngine,
        answers: Answers,
        scores: Tensor,
        mixtures: Sequence[Tensor],
    ) -> Tensor:
        """Set the heads, and return the weights of the views of an engine beside them. [2, views]

        Engine and memory keep the shares of their own mixtures, and only two weights, one for each
        of these mixtures, are fitted together: few answers cannot determine many weights at once.

        kernels: returns the map on rows; scores: of the answers by the engine's views.
        [n, classes, views]; mixtures: weights of these, for nodes without and with class codes
        """
        self.heads = None
        if not len(self):
            return torch.stack([*mixtures])
        sizes = engine.sums_[0].counts_
        assert isinstance(answers.rows, ViewRows)
        heads, memory_scores = MemoryHeads.fitted(
            kernels(self.rows_),
            self.labels_,
            answers.rows,
            answers.labels,
            masses=torch.ones_like(sizes) if engine.balanced else sizes,
            order=draw_order(self.nodes_).argsort(),
        )
        memory_weights, engine_weights = [], []
        for coded, weights in enumerate(mixtures):
            # Far views are for nodes without class codes: see ``ViewEngine.solve``.
            usable = [
                index
                for index, view in enumerate(heads.map.views)
                if not (view.is_far if coded else view.codes)
            ]
            own_weights = engine.mixture(memory_scores, answers, usable).weights
            engine_shares = weights / weights.sum().clamp_min(1e-12)
            memory_shares = own_weights / own_weights.sum().clamp_min(1e-12)
            mixed_scores = [scores.double() @ engine_shares, memory_scores.double() @ memory_shares]
            joint = torch.stack(mixed_scores, 2)
            mixture = engine.mixture(joint, answers, [0, 1])
            if len(answers.labels) >= ENOUGH_ANSWERS:
                without_memory = engine.mixture(joint, answers, [0])
                most = (1 - LEAST_GAIN) * engine.loss(joint, answers, without_memory)
                if engine.loss(joint, answers, mixture) > most:
                    mixture = without_memory
            engine_weights.append(engine_shares * mixture.weights[0])
            memory_weights.append(memory_shares * mixture.weights[1])
        self.heads = replace(heads, weights=torch.stack(memory_weights).cpu())
        return torch.stack(engine_weights)

    @property
    def nbytes(self) -> int:
        """Number of bytes kept, without heads, which sums do not count either."""
        return sum(tensor.nbytes for tensor in super().state().values())

    def state(self) -> dict[str, Tensor]:
        if self.heads is None:
            return super().state()
        stacked = torch.stack([*self.heads.heads])
        solved = {"solved_heads": stacked, "solved_weights": self.heads.weights}
        return super().state() | solved

    def restored(
        self, state: dict[str, Tensor], kernels: Callable[[ViewRows], KernelMap]
    ) -> MemoryHeads | None:
        """Restore what ``state`` returned; return the heads."""
        self.restore(state)
        self.heads = None
        if "solved_heads" in state:
            kernel_map = kernels(self.rows_)
            stacked = state["solved_heads"].to(kernel_map.device)
            self.heads = MemoryHeads(kernel_map, [*stacked], state["solved_weights"])
        return self.heads


def chosen_strength(
    kernel: Tensor, values: Tensor, labels: Tensor, answers: Tensor, masses: Tensor
) -> float:
    """Return the λ of ``LADDER`` with the least error, as found from its middle downhill.

    kernel: of the memory's nodes, [n, n], whose classes are ``labels``; values: of nodes held back
    to these, [held back, n], whose classes are ``answers``; masses: see ``kernel_ridge``
    """

    @cache
    def error(rung: int) -> float:
        head = kernel_ridge(kernel, labels, masses, strength=LADDER[rung])
        return squared_error(values @ head, answers, masses)

    last = len(LADDER) - 1
    rung, best = -1, last // 2
    while rung != best:
        rung = best
        best = min(max(rung - 1, 0), rung, min(rung + 1, last), key=error)
    return LADDER[best]


def kernel_ridge(kernel: Tensor, labels: Tensor, masses: Tensor, *, strength: float) -> Tensor:
    """Return α = (K + λ w̄ W⁻¹)⁻¹ Y with λ = ``strength`` and w̄ the mean weight of a node.

    kernel: K, [n, n]; labels: int64 [n]; masses: weight of each class, spread over its nodes.
    float64 [classes] -> float32 [n, classes]

    Two orthogonal nodes, of two classes with equal weights: (1 + λ)⁻¹ on the diagonal.

    >>> kernel_ridge(torch.eye(2), torch.tensor([0, 1]), torch.ones(2).double(), strength=1.0)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """
    weights = (masses / torch.bincount(labels, minlength=len(masses)))[labels]
    matrix = kernel.to(torch.float64, copy=True)
    matrix.diagonal().add_(strength * weights.mean() / weights + JITTER)
    right = torch.nn.functional.one_hot(labels, len(masses)).to(matrix.dtype)
    factor = torch.linalg.cholesky(matrix)
    return torch.cholesky_solve(right, factor).float()


def squared_error(scores: Tensor, labels: Tensor, masses: Tensor) -> float:
    """Return Σ_c m_c/n_c Σ_{i∈c} ‖y_i - s_i‖² with class weights m.

    >>> squared_error(torch.tensor([[1., 0.], [1., 0.]]), torch.tensor([0, 1]), torch.ones(2))
    2.0
    """
    labels = labels.to(scores.device)
    weights = (masses / torch.bincount(labels, minlength=len(masses)).clamp_min(1))[labels]
    right = torch.nn.functional.one_hot(labels, scores.shape[1])
    return float(weights @ (scores - right).square().sum(1).to(weights.dtype))
