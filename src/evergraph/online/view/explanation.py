"""Explanations: the contribution of each node to the scores of a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.component import ShownRecord
from evergraph.graphs.csr import repeat
from evergraph.online.delta import Label, NodeId
from evergraph.online.graph.live_embeddings import LiveEmbeddings, LiveSmoother
from evergraph.online.graph.live_relations import PARTS
from evergraph.online.view.flows import Flow, as_long_as, sums_of_sparse, unpacked
from evergraph.online.view.page import Reading
from evergraph.tables.scheme import NamedValue, ValuesOf
from evergraph.topology import MixHop, Stepwise
from evergraph.topology.base import coefficients


@dataclass(frozen=True)
class Voice:
    """The contribution of one node to the scores of another.

    Attributes:
        node: its id.
        label: its class, if known.
        weight: w_u, the weight of its features in the embedding before normalisation; summed over
            hops if these are kept apart. Relations are not included.
        says: its contribution to the score of each explained class.
        by_label: the part of it that is due to its label; empty if the head uses no class codes.
    """

    node: NodeId
    label: Label | float | None
    weight: float
    says: tuple[float, ...]
    by_label: tuple[float, ...] = ()


@dataclass(frozen=True)
class ColumnContribution:
    """What a column of the features adds to scores: the node's own values, and those around it.

    Attributes:
        column: its name in the user's table, or its number.
        says: its contribution to the score of each explained class.
    """

    column: str
    says: tuple[float, ...]


@dataclass(frozen=True)
class ValueContribution:
    """What a category, an item of a list or a word adds to scores, of the node and around it.

    Attributes:
        column: its column.
        value: its name in the table that was given.
        says: its contribution to the score of each explained class.
    """

    column: str
    value: str
    says: tuple[float, ...]


@dataclass(frozen=True)
class Explanation(ShownRecord):
    """A prediction as a sum: scores[c] = Σ says[c] over voices + others[c] + rest[c].

    If f_topo is linear, e = Σ_u w_u x_u / ‖Σ_u w_u x_u‖. A ReLU head is piecewise linear,
    s_c(e) = g_c·e + b_c with slopes g_c that hold around e. So node u contributes exactly
    w_u g_c·x_u / ‖...‖. b_c is ``rest``: the intercept of ``auto``, 0 for ``analytic``.

    Hops that are kept apart are such sums, each with its own slopes and length. So are the class
    codes near and far of ``auto``, Σ_u n_u c_u / ‖...‖ with c_u the code of u's label; the features
    that come along one and two relations, Σ_u f_u ⊙ x_u / ‖...‖, where f_u sums the paths from u
    (see ``LiveRelations.flows``); and class codes along relations. The node's own type, and its
    degree and feature length, count as its own contribution. The contributions of u in all of these
    are added up.

    Attributes:
        node: its id.
        label: its class, if known.
        classes: the likeliest classes or labels, the prediction first; none for a number.
        probabilities: of these.
        scores: of these; probabilities are the softmax over the scores of all classes, or the
            logistic function of each label's. The number, if that is predicted.
        voices: the nodes that contribute most to any of these scores, largest first; None if f_topo
            is not linear or the head has no slopes.
        others: the contribution of all other nodes.
        rest: what no node contributes: the intercept, which says how likely a class is before
            anything is known of a node, and rounding.
        columns: what columns of features add, largest first, and ``words`` of the node's texts;
            the rest of a score is due to labels, degrees, relations and the intercept. Of a wide
            sparse array, the largest values of each row.
        values: what categories and words add, of the nodes in a table that was given; None without
            one. A learner keeps hashes of them, not names.
    """

    node: NodeId
    label: Label | float | None
    classes: tuple[Label, ...]
    probabilities: tuple[float, ...]
    scores: tuple[float, ...]
    voices: tuple[Voice, ...] | None = None
    others: tuple[float, ...] = ()
    rest: tuple[float, ...] = ()
    columns: tuple[ColumnContribution, ...] | None = None
    values: tuple[ValueContribution, ...] | None = None


def said(weights: Tensor, features: Tensor, slopes: Tensor, *, unit: bool) -> Tensor:
    """Return the contribution of each node to each score.  -> [nodes, classes]

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
    smoother: LiveSmoother, node: int, powers: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the positions that e_v = Σ_u w_u x_u sums over, and the weights.

    w = Σ_l c_l δ_v Â^l: one row goes through the graph, starting at the node alone, so the cost is
    that of its ego-subnetwork.

    powers: c_0, ..., c_L; -> int64 [nodes within L hops], ascending, float64 [nodes]
    """
    nodes, row = torch.tensor([node]), torch.ones(1, dtype=torch.float64)
    met, parts = [nodes], [row * powers[0]]
    for share in powers[1:]:
        indptr, columns, weights = smoother.rows(nodes)
        nodes, row = _summed(columns, weights.double() * repeat(row, indptr.diff()))
        met.append(nodes)
        parts.append(row * share)
    return _summed(torch.cat(met), torch.cat(parts))


def _summed(nodes: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return each node once, ascending, with the sum of its values."""
    distinct, where = np.unique(nodes.numpy(), return_inverse=True)
    sums = np.bincount(where.reshape(-1), weights=values.numpy(), minlength=len(distinct))
    return torch.from_numpy(distinct.astype(np.int64)), torch.from_numpy(sums)


def powers_of(embeddings: LiveEmbeddings) -> list[list[float]] | None:
    """Return c_0, ..., c_L of each part of an embedding that is normalised by itself, or None."""
    # Hops that are kept apart are such parts. Not every f_topo is such a sum.
    topology = embeddings.topology
    if isinstance(topology, MixHop):
        if embeddings.scaling == "unit" and not topology.unit:
            return None  # all parts share one length
        return [[0.0] * hop + [1.0] for hop in topology.kept]
    powers = coefficients(topology) if isinstance(topology, Stepwise) else None
    return None if powers is None else [powers]


def explain(
    reading: Reading,
    node: NodeId,
    *,
    top: int,
    limit: int,
    columns: Sequence[str] = (),
    values: ValuesOf | None = None,
) -> Explanation:
    """Explain the prediction for the one node of a reading; see ``Explanation``.

    top: how many classes; limit: how many contributions at most; columns: the user's column of each
    feature, by default its number; values: finds the categories and words of nodes.
    """
    page, known, target = reading.page, reading.known, reading.page.target
    vectors = reading.vectors(reading.positions)
    scores = torch.from_numpy(page.scores(vectors.numpy()))[0]
    best = target.leading(scores, top)
    shares = target.shares(scores[None].numpy())[0, best.numpy()]  # as ``predict_proba`` has them
    plain = Explanation(
        node=node,
        label=reading.named_labels(reading.positions)[0],
        classes=tuple(page.classes[number] for number in best.tolist() if target.is_named),
        probabilities=tuple(shares.tolist()) if target.has_probabilities else (),
        scores=tuple(scores[best].tolist()),
    )
    slopes = None if page.scorer is None else page.scorer.slopes(vectors[0])
    flows = None if slopes is None else _flows(reading, vectors[0])
    if slopes is None or flows is None:
        return plain
    nodes, weights, says, by_label = _summed_contributions(flows, slopes[best])
    order = says.abs().amax(1).argsort(descending=True, stable=True)
    largest, others = order[:limit], order[limit:]
    coded = known.codes is not None
    names = reading.names(nodes[largest].tolist()), reading.named_labels(nodes[largest])
    numbers = (part[largest].tolist() for part in (weights, says, by_label))
    return replace(
        plain,
        voices=tuple(
            Voice(name, label, weight, tuple(spoken), tuple(labelled) if coded else ())
            for name, label, weight, spoken, labelled in zip(*names, *numbers, strict=True)
        ),
        others=tuple(says[others].sum(0).tolist()),
        rest=tuple((scores[best] - says.sum(0)).tolist()),
        columns=_column_contributions(flows, slopes[best], columns)[:limit],
        values=None
        if values is None
        else _value_contributions(reading, flows, slopes[best], values)[:limit],
    )


def _flows(reading: Reading, vector: Tensor) -> list[Flow] | None:
    """Return the parts of the node's vector in order, or None if one is not such a sum."""
    known, node = reading.known, int(reading.positions[0])
    graph, embeddings, related = known.graph, known.embeddings, known.relations
    powers = powers_of(embeddings)
    if powers is None:
        return None

    def own(start: int, width: int) -> Flow:
        """Return a part of the vector that is the node's own."""
        rows = vector[None, start : start + width]
        return Flow(torch.tensor([node]), torch.ones(1), rows, unit=False)

    flows, end = [], reading.page.dims
    for power in powers:
        nodes, weights = contributions(embeddings.smoother, node, power)
        unit = embeddings.scaling == "unit"
        rows, sparse = graph.features[nodes], None
        if known.words is not None and known.word_columns.of:
            sparse = as_long_as(unpacked(known.words.of(nodes), known.word_columns.of), rows)
        flows.append(Flow(nodes, weights, rows, unit, weighs=True, sparse=sparse))
    if related is not None:  # the node's type, then what reaches it along one relation and two
        width = related.sent.shape[1]
        flows.append(own(end, width))
        end += PARTS * width
        for hops in range(1, PARTS):
            nodes, factors = related.flows(node, hops=hops, width=width)
            rows = factors * related.sent[nodes]
            flows.append(Flow(nodes, torch.ones(len(nodes)), rows))
    if known.shape is not None:
        flows.append(own(end, known.shape.dims))
        end += known.shape.dims
    if known.words is not None:
        part = own(end, known.words.dims)
        sparse = unpacked(part.rows, known.word_columns.of) if known.word_columns.of else None
        flows.append(part._replace(of_words=True, sparse=sparse))
    if known.codes is not None:
        smoother, shown = known.codes.smoother, known.codes.shown
        for power in ([0.0, 1.0], [0.0, 0.0, 1.0]):  # near and far
            nodes, weights = contributions(smoother, node, power)
            if len(power) > 2:  # a node does not see its own label
                weights = weights.where(nodes != node, 0.0)
            flows.append(Flow(nodes, weights, shown[nodes], of_labels=True))
        if related is not None:
            nodes, factors = related.flows(node, hops=1, width=flows[-1].rows.shape[1])
            rows = factors * shown[nodes]
            flows.append(Flow(nodes, torch.ones(len(nodes)), rows, of_labels=True))
    return flows


def _column_contributions(
    flows: Sequence[Flow], slopes: Tensor, names: Sequence[str]
) -> tuple[ColumnContribution, ...]:
    """Return what each column of features adds to the scores, the largest first."""
    parts = slopes.double().split([flow.rows.shape[1] for flow in flows], dim=1)
    if any(flow.sparse is not None for flow in flows):
        return _by_largest(sums_of_sparse(flows, parts))
    by_feature = torch.zeros(1)
    for flow, part in zip(flows, parts, strict=True):
        if flow.weighs:
            shown = flow.weights.double() @ flow.rows.double()
            if flow.unit:
                shown = shown / shown.norm().clamp_min(torch.finfo(shown.dtype).tiny)
            by_feature = by_feature + shown * part  # [classes, features]
    if len(names) != by_feature.shape[-1]:
        names = [str(number) for number in range(by_feature.shape[-1])]
    sums: dict[str, Tensor] = {}
    for name, says in zip(names, by_feature.t(), strict=True):
        sums[name] = sums.get(name, torch.zeros(len(says), dtype=torch.float64)) + says
    for flow, part in zip(flows, parts, strict=True):
        if flow.of_words:
            sums["words"] = flow.rows[0].double() @ part.t()
    return _by_largest(sums)


def _by_largest(sums: Mapping[str, Tensor]) -> tuple[ColumnContribution, ...]:
    order = sorted(sums, key=lambda name: -float(sums[name].abs().max()))
    return tuple(ColumnContribution(name, tuple(sums[name].tolist())) for name in order)


def _value_contributions(
    reading: Reading, flows: Sequence[Flow], slopes: Tensor, values_of: ValuesOf
) -> tuple[ValueContribution, ...]:
    """Return what each category and word adds to the scores, the largest first.

    Left out are columns of nodes whose features are no longer those of the table.
    """
    sums: dict[tuple[str, str], Any] = {}
    parts = slopes.double().split([flow.rows.shape[1] for flow in flows], dim=1)
    for flow, part in zip(flows, parts, strict=True):
        if not flow.weighs:
            continue
        rows, weights = flow.rows.double().numpy(), flow.weights.double().numpy()
        length = max(np.linalg.norm(weights @ rows), np.finfo(float).tiny) if flow.unit else 1.0
        names = reading.names(flow.nodes.tolist())
        found = values_of(names)
        for name, weight, row in zip(names, weights / length, rows, strict=True):
            for column, start, own in _of_columns(found.get(name, ())):
                width = len(own[0].vector)
                meant = np.sum([each.vector for each in own], axis=0)
                if not np.allclose(row[start : start + width], meant, atol=1e-5):
                    continue
                slope = part[:, start : start + width].numpy()  # [classes, width]
                for each in own:
                    key = column, each.value
                    sums[key] = sums.get(key, 0.0) + weight * (slope @ each.vector)
    order = sorted(sums, key=lambda key: -float(np.abs(sums[key]).max()))
    return tuple(ValueContribution(*key, tuple(sums[key].tolist())) for key in order)


def _of_columns(values: Sequence[NamedValue]) -> list[tuple[str, int, list[NamedValue]]]:
    """Return the values of each column, with the place of its features."""
    found: dict[tuple[str, int], list[NamedValue]] = {}
    for value in values:
        found.setdefault((value.column, value.start), []).append(value)
    return [(*key, own) for key, own in found.items()]


def _summed_contributions(
    flows: Sequence[Flow], slopes: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Add up the contributions of each node in all parts.  slopes: [classes, dims]

    -> nodes [n], weights [n], what they say [n, classes], and the part due to labels [n, classes]
    """
    nodes, where = torch.cat([flow.nodes for flow in flows]).unique(return_inverse=True)
    weights = torch.zeros(len(nodes), dtype=torch.float64)
    says = torch.zeros(len(nodes), len(slopes))
    by_label = torch.zeros_like(says)
    parts = slopes.split([flow.rows.shape[1] for flow in flows], dim=1)
    rows_of = where.split([len(flow.nodes) for flow in flows])
    for flow, part, rows in zip(flows, parts, rows_of, strict=True):
        added = said(flow.weights, flow.rows, part, unit=flow.unit)
        says[rows] += added
        if flow.of_labels:
            by_label[rows] += added
        if flow.weighs:
            weights[rows] += flow.weights
    return nodes, weights, says, by_label
