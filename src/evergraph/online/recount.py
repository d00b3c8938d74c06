"""Verification of a learner's incremental state against a computation from scratch.

Embeddings, class codes, counts and sums are updated by differences with every delta. Here they are
recomputed from graph, features and labels alone, like a learner that receives everything at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.ridge import balanced_ridge
from evergraph.graphs import UNLABELLED
from evergraph.online.heads import AnalyticHead, FusedHead, TargetHead
from evergraph.online.knowledge import Knowledge
from evergraph.online.learned_nodes import lot
from evergraph.online.learner import OnlineLearner

ROWS = 1 << 14  # compared at a time
CLOSE = 1e-3  # relative to the largest value: rounding that float32 differences may accumulate
CLOSER = 1e-6  # the same for float64
SOLVED = 1e-4  # of the largest weight, solved again from the same sums
SUMS = ("sums", "mass", "counts", "gram", "cross")


def recount(learner: OnlineLearner) -> Iterator[str]:
    """Yield a sentence for each inconsistency; nothing is changed.

    It takes about as long as learning everything at once, and as much memory again.

    >>> from evergraph.online.delta import Delta
    >>> from evergraph.online.heads import AnalyticHead
    >>> from evergraph.online.learner import OnlineLearner
    >>> learner = OnlineLearner(head=AnalyticHead(width=16))
    >>> _ = learner.apply(Delta(nodes="ab", features=torch.eye(2), labels="xy"))
    >>> list(recount(learner))
    []
    >>> learner._knowledge.labels.counts_[0] += 1
    >>> list(recount(learner))
    ['class 0 is recorded with 2 nodes, and has 1']
    """
    knowledge = learner._knowledge
    yield from _ids(learner, knowledge)
    yield from _record(learner)
    if knowledge is None:
        return
    wrong = [*_graph(knowledge), *_labels(knowledge)]
    yield from wrong
    if not wrong:  # the checks below rely on a sound graph and labels
        yield from _vectors(learner, knowledge)
        yield from _sums(learner, knowledge)
        yield from _scores(learner)


def _ids(learner: OnlineLearner, knowledge: Knowledge | None) -> Iterator[str]:
    names = learner._ids._ids
    there = np.array([name is not None for name in names], dtype=bool)
    alive = np.zeros(0, bool) if knowledge is None else knowledge.graph.alive.numpy()
    if len(there) != len(alive) or bool((there != alive).any()):
        yield "the nodes with ids are not those of the graph"
    if int(there.sum()) != len(learner._ids):
        yield "two nodes have the same id"
    if knowledge is None or knowledge.held is None or len(there) != len(alive):
        return
    lots = knowledge.held._lots.array
    for position, name in enumerate(names):
        if int(lots[position]) != (0 if name is None else lot(name)):
            yield f"position {position} has the lot of another id"
            return


def _record(learner: OnlineLearner) -> Iterator[str]:
    record = learner._record.prequential
    asked, right = record.curve_[:, 3:].double().sum(0).tolist()
    totals = record.totals_.double().tolist()
    if abs(asked - totals[0]) > 0.5 or abs(right - totals[1]) > CLOSE * max(1.0, abs(totals[1])):
        yield f"the history counts {asked:.0f} predictions, and its total is {totals[0]:.0f}"
    status = learner.status()
    if not 0 <= status.solved <= status.seq:
        yield f"scores are recorded as those of delta {status.solved} of {status.seq}"


def _graph(knowledge: Knowledge) -> Iterator[str]:
    graph = knowledge.graph
    alive = graph.alive.numpy()
    if not bool(graph.features.isfinite().all()):
        yield "features are not finite"
    if bool(graph.features[~graph.alive].any()):
        yield "forgotten nodes have features"
    ends, weights = _entries(knowledge)
    if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= len(alive)):
        yield "edges lead to nodes that never existed"
        return
    if ends.size and not bool(alive[ends].all()):
        yield "edges lead to nodes that were forgotten"
    if not bool((weights > 0).all() and np.isfinite(weights).all()):
        yield "weights of edges are not above 0"
    if graph.undirected:
        there, back = ((ends[0] << 32) | ends[1], (ends[1] << 32) | ends[0])
        order, reverse = np.argsort(there, kind="stable"), np.argsort(back, kind="stable")
        same = bool((there[order] == back[reverse]).all())
        if not same or bool((weights[order] != weights[reverse]).any()):
            yield "undirected edges differ between their two directions"


def _entries(knowledge: Knowledge) -> tuple[Any, Any]:
    """Return sources and targets of all entries, and their weights.  int64 [2, m], float32 [m]"""
    every = torch.arange(knowledge.graph.num_nodes)
    indptr, sources = knowledge.graph.rows(every)
    targets = np.repeat(every.numpy(), np.diff(indptr))
    return np.stack([sources.astype(np.int64), targets]), knowledge.graph.weights(every)


def _labels(knowledge: Knowledge) -> Iterator[str]:
    labels, classes = knowledge.labels.every, len(knowledge.classes)
    if len(labels) and not -1 <= int(labels.min()) <= int(labels.max()) < max(classes, 0):
        yield f"nodes have class numbers beyond the {classes} known classes"
        return
    if bool((labels[~knowledge.graph.alive] != UNLABELLED).any()):
        yield "forgotten nodes have classes"
    counted = torch.bincount(labels[labels != UNLABELLED], minlength=classes)
    recorded = torch.zeros_like(counted)
    recorded[: len(knowledge.labels.counts_)] = knowledge.labels.counts_
    for number in (counted != recorded).nonzero().flatten().tolist()[:1]:
        told, found = int(recorded[number]), int(counted[number])
        yield f"class {number} is recorded with {told} nodes, and has {found}"


def _twin(learner: OnlineLearner, knowledge: Knowledge) -> Knowledge:
    """Return the same graph and labels, given at once to a fresh learner."""
    twin = OnlineLearner.from_parameters(learner.parameters)
    related = knowledge.relations is not None
    fresh = twin._begun(knowledge.graph.num_features, related=related)
    ids = ["" if name is None else name for name in learner._ids._ids]
    ends, weights = _entries(knowledge)
    if knowledge.graph.undirected:
        once = ends[0] < ends[1]
        ends, weights = ends[:, once], weights[once]
    fresh.extend(ids)
    fresh.change(
        knowledge.graph.features.clone(),
        torch.from_numpy(ends),
        weights=torch.from_numpy(weights) if knowledge.graph.weighted else None,
    )
    fresh.number(list(knowledge.classes))
    labelled = (knowledge.labels.every != UNLABELLED).nonzero().flatten()
    fresh.learn(labelled, knowledge.labels.of(labelled))
    return fresh


def _vectors(learner: OnlineLearner, knowledge: Knowledge) -> Iterator[str]:
    fresh = _twin(learner, knowledge)
    nodes = knowledge.graph.alive.nonzero().flatten()
    every = torch.arange(knowledge.graph.num_nodes)
    parts: list[tuple[str, Any, Any]] = [("embeddings", knowledge.embeddings, fresh.embeddings)]
    if knowledge.shape is not None:
        parts.append(("degrees and lengths", knowledge.shape, fresh.shape))
    if knowledge.codes is not None and knowledge.relations is None:
        parts.append(("class codes", knowledge.codes, fresh.codes))
    for name, own, others in parts:
        # What vectors are made of: a hop may be kept that they do not show. Whether two hops of
        # codes are kept with a node's own, which is subtracted, depends on when they were summed.
        for key in (key for key in own.kept if not key.startswith(("drift", "subtracted"))):
            both = own.kept[key].tensor, others.kept[key].tensor
            if name == "class codes" and key == "state_2":
                both = own.of(every), others.of(every)
            kept, anew = both
            far = [some for some in nodes.split(ROWS) if not _close(kept[some], anew[some])]
            if far:
                where = f"({key}), for example around position {int(far[0][0])}"
                yield f"{name} do not match graph, features and labels {where}"
                break
    learned = knowledge.labels.every
    counted, known = np.zeros(len(learned), bool), knowledge.counted._slots.array
    counted[: len(known)] = known > 0
    if bool((counted != (learned.numpy() != UNLABELLED)).any()):
        yield "the nodes that are counted are not those that are learned"


def _close(own: Tensor, others: Tensor, share: float = CLOSE, least: float = 1.0) -> bool:
    scale = max(least, float(others.abs().max())) if others.numel() else least
    return bool(((own.double() - others.double()).abs() <= share * scale).all())


def _sums(learner: OnlineLearner, knowledge: Knowledge) -> Iterator[str]:
    """Compare the head's sums with sums over the vectors that nodes are counted as."""
    if not isinstance(learner.head, AnalyticHead | FusedHead | TargetHead):
        return  # the head keeps no sums
    twin = OnlineLearner.from_parameters(learner.parameters)
    twin._begun(knowledge.graph.num_features, related=knowledge.relations is not None)
    head = twin.head
    head.meet(list(knowledge.classes))
    head.grow(len(knowledge.classes))
    if isinstance(head, FusedHead) and isinstance(learner.head, FusedHead):
        head.stand_as(learner.head)
    nodes = (knowledge.labels.every != UNLABELLED).nonzero().flatten()
    if bool((knowledge.counted._slots.array[nodes.numpy()] == 0).any()):
        return  # reported by ``_vectors``
    for part in nodes.split(ROWS):
        head.learn(part, knowledge.counted.of(part), knowledge.labels.of(part))
        if len(knowledge.counted.moved(part, knowledge.of(part)).places):
            yield "nodes have moved beyond the tolerance since they were counted"
            return
    kept = learner.head.state()
    for name, value in head.state().items():
        if name.split(".")[-1] in SUMS and name in kept:
            share = CLOSER if value.is_floating_point() else 0.0
            if kept[name].shape != value.shape or not _close(kept[name], value, share):
                yield f"the sums of the head ({name}) do not match its nodes"


def _scores(learner: OnlineLearner) -> Iterator[str]:
    """Compare the head's weights with those solved from its sums, if it is up to date."""
    head = learner.head
    pairs: list[tuple[Tensor, Tensor]] = []
    if type(head) is AnalyticHead and head._settled:
        pairs = [(head.weights_, balanced_ridge(head.statistics_, head.regularisation))]
    elif isinstance(head, FusedHead) and head.engine.solved and len(head.engine.strengths_):
        engine = head.engine
        solved = [engine.solution(place).weights for place in range(len(engine.sums_))]
        shares = zip(solved, engine.fused_.weights, strict=True)
        pairs = [*zip(engine.heads_, (one * share for one, share in shares), strict=True)]
    for own, others in pairs:
        if own.shape != others.shape or not _close(own, others, SOLVED, 0.0):
            yield "scores do not match the sums of the head"
            return
