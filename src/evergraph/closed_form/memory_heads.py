"""Heads on a memory of embeddings: kernel ridge regression on some nodes of every class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.views import View, ViewRows

# λ in question, relative to the kernel of a node with itself.
LADDER = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
# λ is chosen with so many of the nodes: cheap however many are kept.
CHOICE_NODES = 512
# λ without any answer held back.
UNKNOWN = 0.1
# Added to K's diagonal, since two nodes may be equal up to rounding.
JITTER = 1e-6


def memory_views(views: Sequence[View]) -> tuple[View, ...]:
    """Return how heads on a memory look at its nodes, which show all parts of some views.

    Everything near with class codes, everything without, a node's own features, and features two
    hops away, as far as the views have them.

    >>> from evergraph.closed_form.ridge import nearly_best
    >>> from evergraph.closed_form.views import parse_views
    >>> [str(view) for view in memory_views(parse_views(["0|1|2|4|r+y", "0|s", "32"]))]
    ['0|1|2|4|r|s+y', '0|1|2|4|32|r|s', '0|s', '2|r']
    >>> [str(view) for view in memory_views(parse_views(["2"]))]
    ['2']
    """
    hops = tuple(sorted({hop for view in views for hop in view.hops}))
    coded, related, shaped = (
        any(getattr(view, name) for view in views) for name in ("codes", "related", "shaped")
    )
    whole = View(hops, related=related, shaped=shaped)
    near = tuple(hop for hop in hops if not View((hop,)).is_far)
    wanted = [replace(whole, hops=near, codes=True)] if coded else []
    wanted.append(whole)
    wanted += [View((0,), shaped=shaped)] if 0 in hops else []
    wanted += [View((2,), related=related)] if 2 in hops else []
    return tuple(dict.fromkeys(view for view in wanted if view.parts))


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
        strengths: λ of every view, relative to the mean of w.
    """

    map: KernelMap
    heads: Sequence[Tensor]
    strengths: Sequence[float] = ()

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
        ``CHOICE_NODES`` of the memory.

        labels: of the memory.  int64 [kept]; rows, answers: of nodes held back, and their classes;
        masses: weight of every class, equal ones or their sizes.  float [classes];
        order: of the memory, a mixture of its classes.  int64 [kept]
        """
        labels, masses = labels.to(kernels.device), masses.to(kernels.device, torch.float64)
        few, seen = order[:CHOICE_NODES].to(kernels.device), kernels.seen_of(rows, kernels.views)
        between = replace(kernels, columns=None).projected(kernels.landmarks)
        heads, scores, strengths = [], [], []
        for view in kernels.views:
            gram, asked = kernels.features(view, between), kernels.features(view, seen)
            strength = UNKNOWN
            if len(answers):
                narrow = gram[few][:, few], labels[few], masses
                weights = [kernel_ridge(*narrow, strength=each) for each in LADDER]
                errors = [squared_error(asked[:, few] @ a, answers, masses) for a in weights]
                strength = nearly_best(LADDER, errors)
            head = kernel_ridge(gram, labels, masses, strength=strength)
            heads.append(head)
            scores.append(asked @ head)
            strengths.append(strength)
        return cls(kernels, heads, strengths), torch.stack(scores, 2)

    def scores(self, rows: ViewRows, weights: Tensor) -> Tensor:
        """Return Σ_v a_v s_v.  weights: a, [views] -> [n, classes]"""
        total = torch.zeros(len(rows), self.heads[0].shape[1], device=self.map.device)
        pairs = zip(self.map.views, self.heads, weights.tolist(), strict=True)
        used = [(view, head * weight) for view, head, weight in pairs if weight]
        if used:
            seen = self.map.seen_of(rows, [view for view, _ in used])
            for view, head in used:
                total += self.map.scores(view, seen, head.t())
        return total


def kernel_ridge(kernel: Tensor, labels: Tensor, masses: Tensor, *, strength: float) -> Tensor:
    """Return α = (K + λ w̄ W⁻¹)⁻¹ Y with λ = ``strength`` and w̄ the mean weight of a node.

    kernel: K, [n, n]; labels: int64 [n]; masses: weight of each class, spread over its nodes.
    float64 [classes] -> float32 [n, classes]

    Two nodes that are apart, of two classes that weigh alike: (1 + λ)⁻¹ on the diagonal.

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
