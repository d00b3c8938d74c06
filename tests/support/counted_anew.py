"""A learner beside one that is given the same graph and labels at once: what differs between them.

Embeddings, class codes and sums are updated by differences with every delta.
"""

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.online.heads import FusedHead
from evergraph.online.knowledge import Knowledge
from evergraph.online.learner import OnlineLearner

PARTS = ("embeddings", "shape", "codes")  # of a vector; codes walk along relations, if any
ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-6}  # of the largest value
SUMS = ("sums", "mass", "counts", "gram", "cross")


def differences(learner: OnlineLearner) -> list[str]:
    """Return the names of arrays that are not what graph, features and labels make them."""
    knowledge = learner.knowledge
    twin = OnlineLearner.from_parameters(learner.parameters)
    fresh = given_at_once(learner, twin, knowledge)
    alive, every = knowledge.graph.alive, torch.arange(knowledge.graph.num_nodes)
    arrays = {"class counts": (knowledge.labels.counts_, fresh.labels.counts_)}
    for name in PARTS if knowledge.relations is None else PARTS[:2]:
        one, other = getattr(knowledge, name), getattr(fresh, name)
        if one is not None:
            arrays[name] = one.of(every)[alive], other.of(every)[alive]
    twin = OnlineLearner.from_parameters(learner.parameters)
    related, words = knowledge.relations is not None, knowledge.word_columns
    twin._begun(knowledge.graph.num_features, related=related, words=words)
    head, labelled = twin.head, (knowledge.labels.every != UNLABELLED).nonzero().flatten()
    head.meet(list(knowledge.classes))
    head.grow(len(knowledge.classes))
    if isinstance(head, FusedHead):
        head.stand_as(learner.head)
    head.learn(knowledge.counted.of(labelled), knowledge.labels.of(labelled))
    own, others = learner.head.state(), head.state()
    sums = (name for name in others if name.split(".")[-1] in SUMS and name in own)
    arrays |= {name: (own[name], others[name]) for name in sums}
    found = [name for name, (one, other) in arrays.items() if not close(one, other)]
    if len(knowledge.counted.moved(labelled, knowledge.of(labelled)).places):
        found.append("nodes that have moved beyond the tolerance")
    return found


def given_at_once(learner: OnlineLearner, twin: OnlineLearner, knowledge: Knowledge) -> Knowledge:
    graph, related = knowledge.graph, knowledge.relations is not None
    words, every = knowledge.word_columns, torch.arange(graph.num_nodes)
    fresh = twin._begun(graph.num_features, related=related, words=words)
    indptr, sources = graph.rows(every)
    ends = np.stack([sources.astype(np.int64), np.repeat(every.numpy(), np.diff(indptr))])
    weights = torch.from_numpy(graph.weights(every))
    if graph.undirected:
        once = ends[0] < ends[1]
        ends, weights = ends[:, once], weights[torch.from_numpy(once)]
    fresh.extend(["" if name is None else name for name in learner._ids._ids])
    features, weighted = knowledge.features_of(every), graph.weighted
    fresh.change(features, torch.from_numpy(ends), weights=weights if weighted else None)
    fresh.number(list(knowledge.classes))
    labelled = (knowledge.labels.every != UNLABELLED).nonzero().flatten()
    fresh.learn(labelled, knowledge.labels.of(labelled))
    return fresh


def close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return one.equal(other)
    scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
    return bool(((one - other).abs() <= ROUNDING[one.dtype] * scale).all())
