"""Linear discriminant analysis of all nodes seen so far, from class means and one covariance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.ridge import RidgeProblem
from evergraph.core.component import Made, choice, number
from evergraph.graphs import Graph
from evergraph.methods.analytic import Analytic
from evergraph.methods.base import WEIGHTS, Weights, WholeTaskLearner, methods
from evergraph.methods.refresh import Refresh
from evergraph.nn import Backbone, LinearHead
from evergraph.nn.random_features import UntrainedGCN

# The score of a class without nodes: below any other, but finite.
NEVER = torch.finfo(torch.float32).min


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class SLDA(Analytic):
    """Streaming linear discriminant analysis on embeddings (Hayes and Kanan, CVPRW 2020).

    s_c(e) = μ_cᵀ W e - μ_cᵀ W μ_c / 2 with W = (Σ + λ I)⁻¹, λ = ``shrinkage`` x the mean of Σ's
    diagonal: the log-probability of class c, up to a constant, if classes are equally likely
    Gaussians with means μ_c and one covariance Σ. Means and covariance come from sums over nodes
    (``ClassStatistics``), so the order of tasks does not matter, and learners can be merged and
    nodes forgotten exactly. It is the control for ``analytic``: the same sums without random
    features and without least squares.

    Σ is dims x dims: 4 dims² bytes at work, half of it kept, and dims³ / 3 multiplications per
    task.

    Args:
        shrinkage: λ as a share of Σ's mean diagonal.
        weights, ledger, refresh: see ``Analytic``. With ``class-sizes``, Σ is the mean of the
            class covariances; with ``equal``, the covariance over all nodes.
        backbone: ``LinearHead``, which leaves embeddings unchanged.
        trainer, generator: see ``BackboneLearner``; nothing is trained or drawn.
    """

    name = "slda"
    kinds: ClassVar[tuple[str, ...]] = ("class",)
    default_backbone = "linear"
    needs: ClassVar[tuple[type[Backbone], str]] = (
        LinearHead,
        "finds the linear head of an embedding: use backbone 'linear'",
    )
    backbone: Made[LinearHead] = Made()  # type: ignore[assignment]
    shrinkage: float = number(0.1, least=0.0)
    regularisation: Any = field(init=False)

    def __post_init__(self) -> None:
        self.regularisation = self.shrinkage
        super().__post_init__()

    def _make_room(self, dims: int, classes: int) -> None:
        super()._make_room(dims, classes)
        if self.statistics_.width != dims:  # the width is known from the first embedding on
            self.statistics_ = ClassStatistics(dims, device=self.device)

    def _set_head(self, regularisation: float) -> None:
        assert isinstance(self.statistics_, ClassStatistics)
        self.backbone.set_head(*discriminants(self.statistics_, regularisation))

    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        return WholeTaskLearner.logits(self, graph, nodes)

    def novelty(self, graph: Graph, nodes: Tensor, *, logits: Tensor | None = None) -> Tensor:
        """Return the uncertainty of the likeliest class, 1 - max_c p_c.

        Scores omit eᵀ W e / 2, which all classes share, so they do not show how far a node is from
        all classes.
        """
        self._check_learned()
        scores = self.logits(graph, nodes) if logits is None else logits
        return 1 - scores.softmax(dim=1).amax(dim=1)


@methods.register
@dataclass(kw_only=True, eq=False, repr=False)
class OCGL(SLDA):
    """A frozen random GCN with streaming LDA (Donghi et al. 2025), for nodes in small batches.

    e_v = [H^1_v, ..., H^L_v] of an ``UntrainedGCN``, classified as in ``slda``, by class means and
    one covariance Σ of all nodes seen. Nothing is trained and only sums are stored, so the batches
    and the order in which the nodes of a graph arrive do not matter.

    Besides embedding its graph, a batch costs n m² multiplications for n nodes and embeddings of
    width m; the first prediction after it costs m³ / 3 more, however many batches came before.

    Args:
        weights: ``equal``, as classes do not arrive whole in small batches; see ``Analytic``.
        backbone: ``UntrainedGCN``.
        trainer, generator: see ``BackboneLearner``; nothing is trained or drawn.

    >>> from evergraph.datasets import load
    >>> from evergraph.streams import GraphStream
    >>> graph = load("synthetic", nodes=120, classes=4, features=8, seed=0)
    >>> learner = OCGL(backbone=UntrainedGCN(dims=8), generator=torch.Generator())
    >>> for task in GraphStream(graph):
    ...     learner.fit_task(task)
    >>> learner.logits(graph, torch.arange(3)).shape  # scores of all classes seen
    torch.Size([3, 4])
    """

    name = "ocgl"
    default_backbone = "untrained-gcn"
    needs = UntrainedGCN, "needs an untrained network: use backbone 'untrained-gcn'"
    backbone: Made[UntrainedGCN] = Made()
    weights: Weights = choice("equal", WEIGHTS)
    refresh: Refresh = field(init=False, default="none")


def within_covariance(statistics: ClassStatistics) -> tuple[Tensor, Tensor]:
    """Return the covariance that classes share, and their means.  -> [m, m], [m, classes]

    Σ = (G - Σ_c m_c μ_c μ_cᵀ) / Σ_c m_c with masses m_c and μ_c = s_c / m_c, 0 for a class without
    nodes. In float64; values above the diagonal are undefined.

    >>> statistics = ClassStatistics(1)
    >>> statistics.add(torch.tensor([[1.], [3.], [7.]]), torch.tensor([0, 0, 1]), torch.ones(3))
    >>> [part.tolist() for part in within_covariance(statistics)]  # (1 + 1 + 0) / 3
    [[[0.6666666666666666]], [[2.0, 7.0]]]
    """
    mass = statistics.mass_
    tiny = torch.finfo(mass.dtype).tiny
    means = (statistics.sums_ / mass.clamp_min(tiny)[:, None]).t().where(mass > 0, 0.0)
    matrix = statistics.gram_.to(torch.float64, copy=True)
    matrix.addmm_(means * mass, means.t(), alpha=-1)
    return matrix.div_(mass.sum().clamp_min(tiny)), means


def discriminants(statistics: ClassStatistics, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Return W μ_c and -μ_cᵀ W μ_c / 2 of every class.  -> [m, classes], [classes]

    W = (Σ + λ I)⁻¹, λ = ``shrinkage`` x the mean of Σ's diagonal.
    """
    matrix, means = within_covariance(statistics)
    weights = RidgeProblem.plain(matrix, means).solution(shrinkage).weights
    offsets = (means * weights).sum(0) / -2
    return weights, offsets.where(statistics.mass_ > 0, NEVER)
