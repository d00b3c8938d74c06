"""Explanations: the contribution of each node to the scores of a prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from evergraph.core.component import ShownRecord
from evergraph.graphs.csr import repeat
from evergraph.online.delta import Label, NodeId
from evergraph.online.graph.live_embeddings import LiveEmbeddings, LiveSmoother
from evergraph.online.graph.live_relations import PARTS
from evergraph.online.knowledge import Knowledge
from evergraph.online.sparse_rows import Contributions, of_a_sum, of_own_words, unpacked
from evergraph.online.view.published import Reading
from evergraph.tables.scheme import NamedValue, ValuesOf
from evergraph.topology import MixHop, Stepwise
from evergraph.topology.base import coefficients

Record = TypeVar("Record")
Names: TypeAlias = tuple[str, ...]
"""Of a column, or of a column and a value."""


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
            sparse array, the columns of the largest values of each row.
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


def contributions(
    smoother: LiveSmoother, node: int, powers: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the positions that e_v = Σ_u w_u x_u sums over, and the weights.

    w = Σ_l c_l δ_v Â^l: one row goes through the graph, starting at the node alone, so the cost is
    that of its ego-subnetwork.

    powers: c_0, ..., c_L; -> int64 [nodes within L hops], ascending, float64 [nodes]
    """
    nodes, row = torch.tensor([node]), torch.ones(1, dtype=torch.float64)
    nodes_by_hop, weights_by_hop = [nodes], [row * powers[0]]
    for power in powers[1:]:
        indptr, columns, weights = smoother.rows(nodes)
        nodes, row = _summed(columns, weights.double() * repeat(row, indptr.diff()))
        nodes_by_hop.append(nodes)
        weights_by_hop.append(row * power)
    return _summed(torch.cat(nodes_by_hop), torch.cat(weights_by_hop))


def _summed(nodes: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return each node once, ascending, with the sum of its values."""
    distinct, index = np.unique(nodes.numpy(), return_inverse=True)
    sums = np.bincount(index.reshape(-1), weights=values.numpy(), minlength=len(distinct))
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
    published, target = reading.published, reading.published.target
    vectors = reading.known.of(reading.positions)
    scores = torch.from_numpy(published.scores(vectors.numpy()))[0]
    best = target.leading(scores, top)
    shares = target.shares(scores[None].numpy())[0, best.numpy()]  # as ``predict_proba`` has them
    plain = Explanation(
        node=node,
        label=reading.named_labels(reading.positions)[0],
        classes=tuple(published.classes[number] for number in best.tolist() if target.is_named),
        probabilities=tuple(shares.tolist()) if target.has_probabilities else (),
        scores=tuple(scores[best].tolist()),
    )
    assert published.scorer is not None  # it has given scores
    parts = _parts(reading, vectors[0], published.scorer.slopes(vectors[0])[best])
    if parts is None:
        return plain
    nodes, weights, says, by_label = _summed_contributions(parts, len(best))
    order = says.abs().amax(1).argsort(descending=True, stable=True)
    largest, others = order[:limit], order[limit:]
    voices = [
        Voice(name, label, weight, tuple(scores), tuple(of_label) if reading.known.codes else ())
        for name, label, weight, scores, of_label in zip(
            reading.names(nodes[largest].tolist()),
            reading.named_labels(nodes[largest]),
            weights[largest].tolist(),
            says[largest].tolist(),
            by_label[largest].tolist(),
            strict=True,
        )
    ]
    if reading.known.word_columns.of:
        by_column = _sparse_contributions(reading.known, parts)
    else:
        by_column = _column_contributions(parts, columns)
    by_value = () if values is None else _value_contributions(reading, parts, values)
    return replace(
        plain,
        voices=tuple(voices),
        others=tuple(says[others].sum(0).tolist()),
        rest=tuple((scores[best] - says.sum(0)).tolist()),
        columns=_largest(ColumnContribution, by_column, limit),
        values=None if values is None else _largest(ValueContribution, by_value, limit),
    )


class _Part(NamedTuple):
    """A part of a vector as a sum Σ w_u x_u over nodes, of unit length if ``unit``."""

    nodes: Tensor  # positions
    weights: Tensor  # w
    rows: Tensor  # x
    slopes: Tensor  # of each score, by this part.  [classes, width]
    made_of: str = ""  # ``features`` in the embedding, ``words`` or ``labels``
    unit: bool = True

    @property
    def scaled(self) -> Tensor:
        """The weights, divided by the length of the sum if that is of unit length.  float64 [nodes]"""
        weights = self.weights.double()
        if not self.unit:
            return weights
        length = torch.linalg.vector_norm(weights @ self.rows.double())
        scaled: Tensor = weights / length.clamp_min(torch.finfo(length.dtype).tiny)
        return scaled

    def contributions(self) -> Tensor:
        """Return what each node adds to each score.  -> float32 [nodes, classes]

        >>> rows, slopes = torch.tensor([[3.0], [1.0]]), torch.tensor([[2.0]])
        >>> part = _Part(torch.arange(2), torch.tensor([1.0, 2.0]), rows, slopes, unit=False)
        >>> part.contributions()
        tensor([[6.],
                [4.]])
        >>> rows, slopes = torch.tensor([[3e-30, 4e-30]]), torch.tensor([[1.0, 0.0]])
        >>> _Part(torch.arange(1), torch.ones(1), rows, slopes).contributions()
        tensor([[0.6000]])
        """
        weighted = self.scaled[:, None] * self.rows
        return (weighted @ self.slopes.double().t()).float()


def _parts(reading: Reading, vector: Tensor, slopes: Tensor) -> list[_Part] | None:
    """Return the parts of the node's vector in order, or None if one is not such a sum."""
    known, node = reading.known, int(reading.positions[0])
    embeddings, relations, codes = known.embeddings, known.relations, known.codes
    powers_by_part = powers_of(embeddings)
    if powers_by_part is None:
        return None
    parts: list[_Part] = []

    def add(
        nodes: Tensor, weights: Tensor, rows: Tensor, made_of: str = "", unit: bool = True
    ) -> None:
        start = sum(part.rows.shape[1] for part in parts)
        own_slopes = slopes[:, start : start + rows.shape[1]]
        parts.append(_Part(nodes, weights, rows, own_slopes, made_of, unit))

    def add_own(width: int, made_of: str = "") -> None:
        """Add a part of the vector that is the node's own."""
        start = sum(part.rows.shape[1] for part in parts)
        rows = vector[None, start : start + width]
        add(torch.tensor([node]), torch.ones(1), rows, made_of, unit=False)

    for powers in powers_by_part:
        nodes, weights = contributions(embeddings.smoother, node, powers)
        unit = embeddings.scaling == "unit"
        add(nodes, weights, known.graph.features[nodes], "features", unit)
    if relations is not None:  # the node's type, then what reaches it along one relation and two
        width = relations.sent.shape[1]
        add_own(width)
        for hops in range(1, PARTS):
            nodes, factors = relations.flows(node, hops=hops, width=width)
            add(nodes, torch.ones(len(nodes)), factors * relations.sent[nodes])
    if known.shape is not None:
        add_own(known.shape.dims)
    if known.words is not None:
        add_own(known.words.dims, "words")
    if codes is not None:
        nodes, weights = contributions(codes.smoother, node, [0.0, 1.0])
        add(nodes, weights, codes.shown[nodes], "labels")
        nodes, weights = contributions(codes.smoother, node, [0.0, 0.0, 1.0])
        others = weights.where(nodes != node, 0.0)  # a node does not see its own label
        add(nodes, others, codes.shown[nodes], "labels")
        if relations is not None:
            nodes, factors = relations.flows(node, hops=1, width=codes.width)
            add(nodes, torch.ones(len(nodes)), factors * codes.shown[nodes], "labels")
    return parts


def _largest(
    record: Callable[..., Record], contributions: Iterable[tuple[Names, Tensor]], limit: int
) -> tuple[Record, ...]:
    """Add up contributions of the same names; return the largest sums as records, in order."""
    sums: dict[Names, Tensor] = {}
    for names, scores in contributions:
        sums[names] = sums[names] + scores if names in sums else scores
    order = sorted(sums, key=lambda names: -float(sums[names].abs().max()))
    return tuple(record(*names, tuple(sums[names].tolist())) for names in order[:limit])


def _column_contributions(
    parts: Sequence[_Part], names: Sequence[str]
) -> Iterator[tuple[Names, Tensor]]:
    """Yield the names of columns, and what they add to the scores."""
    by_feature = sum(
        (part.scaled @ part.rows.double()) * part.slopes.double()
        for part in parts
        if part.made_of == "features"
    )
    assert isinstance(by_feature, Tensor), "an embedding is made of features"
    if len(names) != by_feature.shape[1]:
        names = [str(number) for number in range(by_feature.shape[1])]
    yield from zip(((name,) for name in names), by_feature.t(), strict=True)
    for part in parts:
        if part.made_of == "words":
            yield ("words",), part.rows[0].double() @ part.slopes.double().t()


def _sparse_contributions(
    known: Knowledge, parts: Sequence[_Part]
) -> Iterator[tuple[Names, Tensor]]:
    """Yield the same for a learner of a wide sparse array, by the values that nodes keep of it."""
    for part in parts:
        columns: Contributions = [], torch.zeros(0, 0)
        if part.made_of == "words":
            columns = of_own_words(part.rows, part.slopes)
        elif part.made_of == "features" and known.words is not None:
            words = unpacked(known.words.of(part.nodes), known.word_columns.of)
            columns = of_a_sum(words, part.scaled, part.rows, part.slopes)
        yield from zip(((str(column),) for column in columns[0]), columns[1], strict=True)


def _value_contributions(
    reading: Reading, parts: Sequence[_Part], values_of: ValuesOf
) -> Iterator[tuple[Names, Tensor]]:
    """Yield column and name of categories and words, and what they add to the scores.

    Left out are columns of nodes whose features are no longer those of the table.
    """
    for part in parts:
        if part.made_of != "features":
            continue
        names = reading.names(part.nodes.tolist())
        values_by_node = values_of(names)
        rows, slopes = part.rows.double().numpy(), part.slopes.double().numpy()
        for name, weight, row in zip(names, part.scaled.tolist(), rows, strict=True):
            for (column, start), values in _by_column(values_by_node.get(name, ())).items():
                end = start + len(values[0].vector)
                encoded = np.sum([value.vector for value in values], axis=0)
                if not np.allclose(row[start:end], encoded, atol=1e-5):
                    continue
                for value in values:
                    scores = weight * (slopes[:, start:end] @ value.vector)
                    yield (column, value.value), torch.from_numpy(scores)


def _by_column(values: Sequence[NamedValue]) -> dict[tuple[str, int], list[NamedValue]]:
    """Return the values of each column, by its name and where its features begin."""
    by_column: dict[tuple[str, int], list[NamedValue]] = {}
    for value in values:
        by_column.setdefault((value.column, value.start), []).append(value)
    return by_column


def _summed_contributions(
    parts: Sequence[_Part], classes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Add up the contributions of each node in all parts.

    -> nodes [n], weights [n], what they say [n, classes], and the share due to labels [n, classes]
    """
    nodes, index = torch.cat([part.nodes for part in parts]).unique(return_inverse=True)
    weights = torch.zeros(len(nodes), dtype=torch.float64)
    says = torch.zeros(len(nodes), classes)
    by_label = torch.zeros_like(says)
    for part, rows in zip(parts, index.split([len(part.nodes) for part in parts]), strict=True):
        scores = part.contributions()
        says[rows] += scores
        if part.made_of == "labels":
            by_label[rows] += scores
        if part.made_of == "features":
            weights[rows] += part.weights
    return nodes, weights, says, by_label
