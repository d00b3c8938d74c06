"""Taking a prediction apart: which nodes speak for which class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evergraph.core.display import ShownRecord
from evergraph.core.label_space import likeliest
from evergraph.graphs.csr import repeat
from evergraph.online.delta import Label, NodeId
from evergraph.online.graph.frozen_graph import FrozenGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.online.graph.live_relations import PARTS, FrozenRelations
from evergraph.online.graph.live_smoother import FrozenSmoother
from evergraph.online.view.page import Pinned
from evergraph.topology import MixHop, Stepwise
from evergraph.topology.base import coefficients


@dataclass(frozen=True)
class Voice:
    """What one node adds to the scores of another.

    Attributes:
        node: its id.
        label: its class, if known.
        weight: w_u, how much of its features flows into the embedding before it is scaled; summed
            over hops where these are kept apart. What comes along relations is not in it.
        says: what it adds to the score of each class asked for.
        by_label: how much of that it adds by its label; nothing where the head sees no labels.
    """

    node: NodeId
    label: Label | None
    weight: float
    says: tuple[float, ...]
    by_label: tuple[float, ...] = ()


@dataclass(frozen=True)
class Explanation(ShownRecord):
    """A prediction taken apart: scores[c] = Σ says[c] over voices + others[c] + rest[c].

    Where f_topo is linear, e = Σ_u w_u x_u / ‖Σ_u w_u x_u‖. A ReLU head is piecewise linear,
    s_c(e) = g_c·e + b_c with slopes g_c that hold around e, so node u adds w_u g_c·x_u / ‖...‖,
    exactly. b_c, ``rest``, is 0 for heads ``analytic`` and ``auto`` but for rounding.

    Where hops are kept apart, each is such a sum with slopes and a length of its own, and so are
    the class codes near and far that ``auto`` sees: Σ_u n_u c_u / ‖...‖ with c_u the code of u's
    label. So is what comes along relations, Σ_u f_u ⊙ x_u / ‖...‖ over one and over two of them,
    where f_u adds up the ways from u (see ``FrozenRelations.flows``), and class codes along them.
    The node's own type is said by the node itself. What u adds by its features and type in all of
    these, and by its label, is added up.

    Attributes:
        node: its id.
        label: its class, if known.
        classes: the likeliest classes, the prediction first.
        probabilities: of these.
        scores: of these; probabilities are their softmax over all classes.
        voices: the nodes that add most to any of these scores, loudest first; None where f_topo is
            not linear or the head has no slopes.
        others: what all other nodes add.
        rest: what no node adds: rounding.
    """

    node: NodeId
    label: Label | None
    classes: tuple[Label, ...]
    probabilities: tuple[float, ...]
    scores: tuple[float, ...]
    voices: tuple[Voice, ...] | None = None
    others: tuple[float, ...] = ()
    rest: tuple[float, ...] = ()


def said(weights: Tensor, features: Tensor, slopes: Tensor, *, unit: bool) -> Tensor:
    """Return what each node adds to each score.  -> [nodes, classes]

    weights: w, [nodes]; features: X, [nodes, dims]; slopes: g, [classes, dims]; unit: whether the
    embedding is divided by its length.

    >>> said(torch.tensor([1., 2.]), torch.tensor([[3.], [1.]]), torch.tensor([[2.]]),
    ...      unit=False)
    tensor([[6.],
            [4.]])
    >>> said(torch.ones(1), torch.tensor([[3e-30, 4e-30]]), torch.tensor([[1., 0.]]), unit=True)
    tensor([[0.6000]])
    """
    flows = weights.double()[:, None] * features  # [nodes, dims]
    if unit:
        flows = flows / flows.sum(0).norm().clamp_min(torch.finfo(flows.dtype).tiny)
    return (flows @ slopes.double().t()).float()


def contributions(
    graph: FrozenGraph, smoother: FrozenSmoother, node: int, powers: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the positions that e_v = Σ_u w_u x_u sums over, and the weights.

    w = Σ_l c_l δ_v Â^l: one row goes through the graph, starting at the node alone, so the cost is
    that of its ego-subnetwork.

    powers: c_0, ..., c_L; -> int64 [nodes within L hops], ascending, float64 [nodes]
    """
    nodes, row = torch.tensor([node]), torch.ones(1, dtype=torch.float64)
    met, parts = [nodes], [row * powers[0]]
    for share in powers[1:]:
        indptr, columns, weights = smoother.rows(graph, nodes)
        nodes, row = _summed(columns, weights.double() * repeat(row, indptr.diff()))
        met.append(nodes)
        parts.append(row * share)
    return _summed(torch.cat(met), torch.cat(parts))


def _summed(nodes: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return each node once, ascending, with the sum of its values."""
    distinct, places = np.unique(nodes.numpy(), return_inverse=True)
    sums = np.bincount(places.reshape(-1), weights=values.numpy(), minlength=len(distinct))
    return torch.from_numpy(distinct.astype(np.int64)), torch.from_numpy(sums)


def powers_of(embeddings: LiveEmbeddings) -> list[list[float]] | None:
    """Return c_0, ..., c_L of each part of an embedding that is of a length of its own.

    Hops that are kept apart are such parts; None where the f_topo is no such sum.
    """
    topology = embeddings.topology
    if isinstance(topology, MixHop):
        if embeddings.scaling == "unit" and not topology.unit:
            return None  # all by one length
        return [[0.0] * hop + [1.0] for hop in topology.kept]
    powers = coefficients(topology) if isinstance(topology, Stepwise) else None
    return None if powers is None else [powers]


def explain(pinned: Pinned, node: NodeId, *, top: int, limit: int) -> Explanation:
    """Return why the one node that is pinned is classified as it is; see ``Explanation``.

    top: how many classes; limit: how many voices at most.
    """
    page, published = pinned.page, pinned.published
    vectors = pinned.vectors(pinned.positions)
    scores = page.scores(pinned.positions, vectors)[0]
    found, shares = likeliest(scores[None], top=min(top, int(page.met.sum())))
    best = found[0]
    plain = Explanation(
        node=node,
        label=published.named_labels(pinned.positions)[0],
        classes=tuple(page.classes[number] for number in best.tolist()),
        probabilities=_numbers(shares[0]),
        scores=_numbers(scores[best]),
    )
    slopes = None if page.scorer is None else page.scorer.slopes(vectors[0])
    flows = None if slopes is None else _flows(pinned, vectors[0])
    if slopes is None or flows is None:
        return plain
    heard = _heard(flows, slopes[best])
    order = heard.says.abs().amax(1).argsort(descending=True, stable=True)
    loud, silent = order[:limit], order[limit:]
    coded = published.codes is not None
    loudest = heard.nodes[loud]
    told = zip(
        pinned.names(loudest.tolist()),
        published.named_labels(loudest),
        heard.weights[loud].tolist(),
        heard.says[loud].tolist(),
        heard.by_label[loud].tolist(),
        strict=True,
    )
    return Explanation(
        **vars(plain)
        | {
            "voices": tuple(
                Voice(name, label, weight, tuple(says), tuple(by_label) if coded else ())
                for name, label, weight, says, by_label in told
            ),
            "others": _numbers(heard.says[silent].sum(0)),
            "rest": _numbers(scores[best] - heard.says.sum(0)),
        }
    )


@dataclass(frozen=True, eq=False)
class _Flow:
    """A part of a vector as a sum over nodes: positions, weights, rows, whether it is scaled."""

    nodes: Tensor
    weights: Tensor
    rows: Tensor
    unit: bool
    of_labels: bool = False
    weighs: bool = True  # whether its weights are those of features in the embedding


@dataclass(frozen=True, eq=False)
class _Heard:
    nodes: Tensor  # [n]
    weights: Tensor  # [n]
    says: Tensor  # [n, classes]
    by_label: Tensor  # [n, classes]


def _flows(pinned: Pinned, vector: Tensor) -> list[_Flow] | None:
    """Return the parts of the pinned node's vector in order, or None where one is no such sum."""
    published, node = pinned.published, int(pinned.positions[0])
    graph, embeddings = published.graph, published.embeddings
    powers, unit = powers_of(embeddings), embeddings.scaling == "unit"
    if powers is None:
        return None
    hops = [contributions(graph, published.smoother, node, power) for power in powers]
    flows = [_Flow(nodes, weights, published.features(nodes), unit) for nodes, weights in hops]
    related = published.relations
    if related is not None:
        flows += _related(related, node, vector[pinned.page.dims :])
    if published.codes is not None:
        smoother, shown = published.codes
        for power in ([0.0, 1.0], [0.0, 0.0, 1.0]):  # near and far
            nodes, weights = contributions(graph, smoother, node, power)
            if len(power) > 2:  # its own label it does not see
                weights = weights.where(nodes != node, 0.0)
            rows = torch.from_numpy(shown.of(nodes.numpy()))
            flows.append(_Flow(nodes, weights, rows, True, True))
        if related is not None:
            nodes, factors = related.flows(node, hops=1, width=flows[-1].rows.shape[1])
            rows = factors * torch.from_numpy(shown.of(nodes.numpy()))
            flows.append(_Flow(nodes, torch.ones(len(nodes)), rows, True, True))
    return flows


def _related(relations: FrozenRelations, node: int, vector: Tensor) -> list[_Flow]:
    """Return the node's type, and what comes to it along one relation and along two.

    vector: what stands beside its embedding
    """
    width = relations.sent.array.array.shape[1]
    flows = [_Flow(torch.tensor([node]), torch.ones(1), vector[None, :width], False, weighs=False)]
    for hops in range(1, PARTS):
        nodes, factors = relations.flows(node, hops=hops, width=width)
        rows = factors * torch.from_numpy(relations.sent.of(nodes.numpy()))
        flows.append(_Flow(nodes, torch.ones(len(nodes)), rows, True, weighs=False))
    return flows


def _heard(flows: Sequence[_Flow], slopes: Tensor) -> _Heard:
    """Add up what each node says in all parts.  slopes: [classes, dims]"""
    nodes, places = torch.cat([flow.nodes for flow in flows]).unique(return_inverse=True)
    weights = torch.zeros(len(nodes), dtype=torch.float64)
    says = torch.zeros(len(nodes), len(slopes))
    by_label = torch.zeros_like(says)
    parts = slopes.split([flow.rows.shape[1] for flow in flows], dim=1)
    met = places.split([len(flow.nodes) for flow in flows])
    for flow, part, rows in zip(flows, parts, met, strict=True):
        spoken = said(flow.weights, flow.rows, part, unit=flow.unit)
        says[rows] += spoken
        if flow.of_labels:
            by_label[rows] += spoken
        elif flow.weighs:
            weights[rows] += flow.weights
    return _Heard(nodes, weights, says, by_label)


def _numbers(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())
