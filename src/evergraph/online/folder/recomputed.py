"""What follows from graph and labels, computed anew and compared with what a learner keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.online.graph.growing_array import KeptArrays
from evergraph.online.graph.growing_graph import GraphChange
from evergraph.online.graph.live_codes import LiveCodes
from evergraph.online.graph.live_embeddings import ROWS
from evergraph.online.heads import FusedHead
from evergraph.online.knowledge import Knowledge
from evergraph.online.learner import OnlineLearner

# Shares of a row's largest value, and of the largest of all: what rounding may differ by.
CLOSE, FLOOR = 1e-4, 1e-6
# How far rows may have been corrected, and which rows of codes are sums without a node's own, depend
# on the order in which a graph came.
OF_ORDER = ("drift", "subtracted")
SUMS = ("sums", "mass", "counts", "gram", "cross")


def differing(learner: OnlineLearner) -> Iterator[str]:
    """Yield the names of arrays that graph, labels, landmarks and penalties do not give.

    Embeddings, class codes and shapes are computed from the graph, sums from the vectors that
    labelled nodes are counted as, and weights from the sums, unless these wait to be solved. What
    is kept along relations, and the landmarks, are taken as they are.

    >>> from evergraph.online.delta import Delta
    >>> learner = OnlineLearner()
    >>> _ = learner.apply(Delta(nodes="ab", features=torch.eye(2), labels="xy", edges=["ab"]))
    >>> list(differing(learner))
    []
    >>> learner.knowledge.embeddings.kept["state_1"].tensor[0, 0] += 0.01
    >>> list(differing(learner))
    ['embeddings.state_1']
    """
    known = learner.knowledge
    if known is None:
        return
    twin = OnlineLearner.from_parameters(learner.parameters)
    shown: dict[str, Any] = {"related": known.relations is not None, "words": known.word_columns}
    fresh = twin._begun(known.graph.num_features, **shown)
    yield from _vectors(known, fresh)
    labelled = (known.labels.every != UNLABELLED).nonzero().flatten()
    counts = torch.bincount(known.labels.of(labelled), minlength=len(known.labels.counts_))
    if not counts.equal(known.labels.counts_):
        yield "labels.counts"
    if not (isinstance(learner.head, FusedHead) and isinstance(twin.head, FusedHead)):
        return
    twin.head.meet(list(known.classes))
    twin.head.grow(len(known.classes))
    twin.head.stand_as(learner.head)
    moved = 0
    for nodes in labelled.split(ROWS):
        moved += len(known.counted.moved(nodes, known.of(nodes)).places)
        twin.head.learn(known.counted.of(nodes), known.labels.of(nodes))
    if moved:
        yield "counted.rows"
    kept, anew = learner.head.state(), twin.head.state()
    sums = sorted(name for name in kept.keys() | anew.keys() if name.split(".")[-1] in SUMS)
    wrong = [f"head.{name}" for name in sums if not _close(kept.get(name), anew.get(name))]
    yield from wrong
    engine = learner.head.engine
    if not wrong and engine.solved and len(engine.strengths_):
        for place, share in enumerate(engine.fused_.weights):
            if not _close(engine.heads_[place], engine.solution(place).weights * share):
                yield f"head.view_{place}.weights"


def _vectors(known: Knowledge, fresh: Knowledge) -> Iterator[str]:
    """Compute what the vectors of nodes are made of from the graph, and compare it."""
    graph, labels = known.graph, known.labels
    nodes, gone = (mask.nonzero().flatten() for mask in (graph.alive, ~graph.alive))
    change = GraphChange(new=nodes, removed=gone, entries=None)
    pairs: list[tuple[str, KeptArrays, KeptArrays]] = []
    fresh.embeddings.update(graph, change)
    pairs.append(("embeddings", known.embeddings, fresh.embeddings))
    if known.shape is not None and fresh.shape is not None:
        fresh.shape.update(graph, change)
        pairs.append(("shape", known.shape, fresh.shape))
    if known.codes is not None and fresh.codes is not None:
        fresh.codes.relations = known.relations
        fresh.codes.name(list(known.classes))
        fresh.codes.update(graph, change, nodes, labels.of(nodes))
        pairs.append(("codes", known.codes, fresh.codes))
    for name, own, others in pairs:
        kept, anew = _arrays(own), _arrays(others)
        yield from (f"{name}.{key}" for key in kept if not _close(kept[key], anew[key]))


def _arrays(part: KeptArrays) -> dict[str, Tensor]:
    kept = part.kept.items()
    found = {key: array.tensor for key, array in kept if not key.startswith(OF_ORDER)}
    if isinstance(part, LiveCodes):
        found["state_2"] = part.of(torch.arange(len(found["state_2"])))
    return found


def _close(kept: Tensor | None, anew: Tensor | None) -> bool:
    """Whether two arrays have the same shape, and rows that differ by rounding; never with NaN."""
    if kept is None or anew is None or kept.shape != anew.shape:
        return False
    if not kept.numel():
        return True
    rows, others = (array.double().reshape(len(array), -1) for array in (kept, anew))
    allowed = CLOSE * others.abs().amax(1, keepdim=True) + FLOOR * others.abs().max()
    return bool(((rows - others).abs() <= allowed).all())
