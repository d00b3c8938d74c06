"""One node: its surroundings, its predicted class, and which nodes speak for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.online.delta import NodeId
    from evergraph.online.explanation import Voice
    from evergraph.online.learner import OnlineLearner

CLASSES = 5  # that are compared


def node_reply(learner: OnlineLearner, node: NodeId, limit: int) -> dict[str, Any]:
    """Return all that is told of a node, as JSON can hold it.

    limit: how many nodes around it are listed, and how many voices.
    """
    around = learner.neighbourhood(node, limit=limit)
    why = learner.explain(node, top=CLASSES, limit=limit)
    weights = {voice.node: voice.weight for voice in why.voices or ()}
    places = zip(around.nodes, around.distances, around.labels, strict=True)
    return {
        "id": node,
        "known": why.label,
        "label": why.classes[0],
        "probability": why.probabilities[0],
        "classes": list(why.classes),
        "probabilities": list(why.probabilities),
        "scores": list(why.scores),
        "neighbours": [
            {"id": near, "hops": hops, "label": label, "weight": weights.get(near)}
            for near, hops, label in places
        ],
        "edges": [list(edge) for edge in around.edges],
        "whole": around.whole,
        "voices": None if why.voices is None else [_voice(voice) for voice in why.voices],
        "others": list(why.others),
        "rest": list(why.rest),
    }


def _voice(voice: Voice) -> dict[str, Any]:
    return {
        "id": voice.node,
        "label": voice.label,
        "weight": voice.weight,
        "says": list(voice.says),
    }
