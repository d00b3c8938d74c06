"""Taking a prediction apart: which nodes speak for which class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.predictions import likeliest
from evergraph.online.delta import Label, NodeId
from evergraph.online.identifiers import IdTable
from evergraph.online.knowledge import Knowledge
from evergraph.online.view import LearnerView


@dataclass(frozen=True)
class Voice:
    """What one node adds to the scores of another.

    Attributes:
        node: its id.
        label: its class, if known.
        weight: w_u, how much of its features flows into the embedding before it is scaled.
        says: what it adds to the score of each class asked for.
    """

    node: NodeId
    label: Label | None
    weight: float
    says: tuple[float, ...]


@dataclass(frozen=True)
class Explanation:
    """A prediction taken apart: scores[c] = Σ says[c] over voices + others[c] + rest[c].

    Where f_topo is linear, e = Σ_u w_u x_u / ‖Σ_u w_u x_u‖. A ReLU head is piecewise linear,
    s_c(e) = g_c·e + b_c with slopes g_c that hold around e, so node u adds w_u g_c·x_u / ‖...‖,
    exactly. b_c, ``rest``, is 0 for head ``analytic``.

    Attributes:
        node: its id.
        label: its class, if known.
        classes: the likeliest classes, the prediction first.
        probabilities: of these.
        scores: of these; probabilities are their softmax over all classes.
        voices: the nodes that add most to any of these scores, loudest first; None where f_topo is
            not linear or the head has no slopes.
        others: what all other nodes add.
        rest: what no node adds.
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


def explain(
    knowledge: Knowledge, ids: IdTable, view: LearnerView, node: NodeId, *, top: int, limit: int
) -> Explanation:
    """Return why a node is classified as it is; see ``Explanation``.

    top: how many classes; limit: how many voices at most.
    """
    page, positions, vectors = view.taken([node])
    scores = page.scores(positions, vectors)[0]
    found, shares = likeliest(scores[None], top=min(top, int(page.met.sum())))
    best = found[0]
    position = int(positions[0])
    plain = Explanation(
        node=node,
        label=_label(knowledge, position),
        classes=tuple(page.classes[number] for number in best.tolist()),
        probabilities=_numbers(shares[0]),
        scores=_numbers(scores[best]),
    )
    slopes = None if page.scorer is None else page.scorer.slopes(vectors[0])
    flows = knowledge.embeddings.weights(knowledge.graph, position)
    if slopes is None or flows is None:
        return plain
    unit = knowledge.embeddings.scaling == "unit"
    spoken = said(flows[1], knowledge.graph.features[flows[0]], slopes[best], unit=unit)
    order = spoken.abs().amax(1).argsort(descending=True, stable=True)
    loud, silent = order[:limit], order[limit:]
    return Explanation(
        **vars(plain)
        | {
            "voices": tuple(
                Voice(
                    ids.at(int(flows[0][row])),
                    _label(knowledge, int(flows[0][row])),
                    float(flows[1][row]),
                    _numbers(spoken[row]),
                )
                for row in loud
            ),
            "others": _numbers(spoken[silent].sum(0)),
            "rest": _numbers(scores[best] - spoken.sum(0)),
        }
    )


def _label(knowledge: Knowledge, position: int) -> Label | None:
    number = int(knowledge.labels.of(torch.tensor([position])))
    return None if number < 0 else knowledge.classes.at(number)


def _numbers(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())
