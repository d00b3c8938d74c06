"""Heads and learners of the live form of ``auto``, on a ring of three classes."""

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from evergraph.core.seeding import seeded
from evergraph.online.delta import Delta
from evergraph.online.heads import FusedHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.view.explanation import Explanation
from evergraph.topology import MixHop

DIMS = 3
CODES = 4
RANDOM = {"basis": "random", "regularisation": 0.01}
VIEWS = [(1,), (0, 1), (0, 1, 2)]  # 2, 0|2 and 0|2+y, by the places of their parts


def begun(**given: object) -> FusedHead:
    """Return a head that knows how wide embeddings are."""
    head = FusedHead(**{"codes": CODES} | RANDOM | given)  # type: ignore[arg-type]
    topology = MixHop(hops=2, kept_hops=(0, 2), unit=True)
    head.begin(2 * DIMS, topology=topology, generator=seeded(0, "head"))
    return head


def vectors(count: int, seed: int = 0) -> Tensor:
    """Return two hops of features, and class codes of two hops."""
    return torch.randn(count, 2 * DIMS + 2 * CODES, generator=seeded(seed, "vectors"))


def live(**given: object) -> OnlineLearner:
    """Return a learner that follows every move."""
    return OnlineLearner(head=FusedHead(**RANDOM | given), tolerance=0.0)  # type: ignore[arg-type]


def ring(nodes: int, *, told: float = 0.0) -> Delta:
    """Neighbours are of the same of three classes; ``told``: how much features tell of it."""
    order = range(nodes)
    features = torch.randn(nodes, DIMS, generator=seeded(0, "noise"))
    features += told * torch.nn.functional.one_hot(torch.arange(nodes) * 3 // nodes, DIMS)
    return Delta(
        nodes=[f"n{i}" for i in order],
        features=features,
        labels=[None if i % 5 == 0 else i * 3 // nodes for i in order],
        edges=[(f"n{i}", f"n{(i + 1) % nodes}") for i in order],
    )


def in_parts(whole: Delta, seed: int) -> Iterator[Delta]:
    """Yield a delta's nodes nine by nine in any order, with all edges there can be by then."""
    met: set[object] = set()
    order = torch.randperm(len(whole.nodes), generator=torch.Generator().manual_seed(seed))
    for part in order.split(9):
        met |= {whole.nodes[i] for i in part}
        yield Delta(
            nodes=[whole.nodes[i] for i in part],
            features=whole.features[part],
            labels=[whole.labels[i] for i in part],
            edges=[edge for edge in whole.edges if met.issuperset(edge)],
        )


def strangers(whole: Delta, shift: float) -> Delta:
    """Return 20 more nodes of a single class, each beside one that is there."""
    return dataclasses.replace(
        whole,
        nodes=[f"x{i}" for i in range(20)],
        features=shift + whole.features[:20],
        labels=[1] * 20,
        edges=[(f"x{i}", f"n{2 * i}") for i in range(20)],
    )


def chances(learner: OnlineLearner, delta: Delta) -> Tensor:
    names, matrix = learner.predict_proba(delta.nodes)
    return matrix[:, [names.index(name) for name in range(3)]]


def explained(learner: OnlineLearner, node: str, tolerance: float) -> Explanation:
    """Explain a node, and check that voices and the intercept add up to its scores."""
    told = learner.explain(node, top=3)
    assert told.voices is not None
    says = torch.tensor([voice.says for voice in told.voices]).sum(0) + torch.tensor(told.others)
    head, names = learner.head, learner.classes
    assert isinstance(head, FusedHead)
    intercept = head.engine.fused_.offsets[[names.index(name) for name in told.classes]].float()
    whole, scores = says + intercept, torch.tensor(told.scores)
    torch.testing.assert_close(whole, scores, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(torch.tensor(told.rest), intercept, atol=tolerance, rtol=tolerance)
    return told
