"""Taking a prediction apart."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.online.delta import Label, NodeId
from evergraph.online.explanation import Explanation, Voice, said
from evergraph.online.identifiers import IdTable
from evergraph.online.knowledge import Knowledge
from evergraph.online.learner_view import LearnerView


def explain(
    knowledge: Knowledge, ids: IdTable, view: LearnerView, node: NodeId, *, top: int, limit: int
) -> Explanation:
    """Return why a node is classified as it is; see ``Explanation``.

    top: how many classes; limit: how many voices at most.
    """
    page, positions, vectors = view.taken([node])
    scores = page.scores(positions, vectors)[0]
    best = scores.topk(min(top, int(page.met.sum()))).indices
    position = int(positions[0])
    plain = Explanation(
        node=node,
        label=_label(knowledge, position),
        classes=tuple(page.classes[number] for number in best.tolist()),
        probabilities=_numbers(scores.softmax(0)[best]),
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
