"""Histories of deltas, drawn, and the graph that each comes to."""

import dataclasses
import json

import torch
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from evergraph.closed_form.own_features import NO_WORDS, PAIRS, WordColumns, packed_words
from evergraph.core.seeding import seeded
from evergraph.online.delta import Delta
from evergraph.online.learner import OnlineLearner


class Ledger:
    """What is left after deltas, in plain dictionaries: the graph that they come to."""

    def __init__(self, *, undirected: bool, related: bool, worded: bool) -> None:
        self.undirected, self.related, self.worded = undirected, related, worded
        self.rows: dict[str, torch.Tensor] = {}
        self.labels: dict[str, object] = {}
        self.edges: dict[tuple[str, ...], float] = {}

    def name(self, edge: tuple[str, str]) -> tuple[str, ...]:
        return tuple(sorted(edge)) if self.undirected else tuple(edge)

    def apply(self, delta: Delta) -> None:
        self.rows |= dict(zip(delta.nodes, delta.features, strict=True))
        self.labels |= dict(zip(delta.nodes, delta.labels, strict=True))
        for place, edge in enumerate(delta.edges):
            name = (*edge, delta.relations[place]) if self.related else self.name(edge)
            stays = self.edges.pop(name, 1.0)  # the last of a pair's relations weighs the pair
            self.edges[name] = delta.weights[place] if delta.weights else stays
        self.edges = {k: v for k, v in self.edges.items() if v and k[0] != k[1]}
        gone = set(map(self.name, delta.removed_edges))
        self.edges = {k: v for k, v in self.edges.items() if self.name(k[:2]) not in gone}
        self.rows |= dict(zip(delta.updated, delta.updated_features, strict=True))
        self.labels |= dict(delta.late)
        for node in delta.forgotten:
            del self.rows[node], self.labels[node]
            self.edges = {k: v for k, v in self.edges.items() if node not in k[:2]}

    def delta(self) -> Delta:
        return Delta(
            nodes=list(self.rows),
            features=torch.stack(list(self.rows.values())),
            labels=[self.labels[node] for node in self.rows],
            edges=[edge[:2] for edge in self.edges],
            weights=list(self.edges.values()),
            relations=[edge[2] for edge in self.edges] if self.related else (),
            types=[type_of(node) for node in self.rows] if self.related else (),
            words=WORDS if self.worded else NO_WORDS,
        )


@dataclasses.dataclass
class History:
    """Deltas that can be applied one after the other, and what is left after each."""

    undirected: bool
    deltas: list[Delta]
    end: Ledger


WORDS = WordColumns(2 * PAIRS, alone=False)


def features_of(rows: int, generator: torch.Generator, *, worded: bool) -> torch.Tensor:
    """Return three measured columns, and up to three of nine words."""
    measured = torch.randn(rows, 3, generator=generator)
    if not worded:
        return measured
    words = torch.rand(rows, 9, generator=generator) * (
        torch.rand(rows, 9, generator=generator) < 0.4
    )
    return torch.cat([measured, packed_words(csr_matrix(words.numpy()))], dim=1)


def type_of(node: str) -> str | None:
    return (None, "paper", "author")[len(node) % 2 + int(node[-1]) % 2]


@st.composite
def histories(draw: st.DrawFn, *, related: bool = False, worded: bool = False) -> History:
    """Nodes, edges, weights, edges that go, other features, late labels, nodes that go.

    related: with relations of edges, and types of nodes; then all edges have weights, and none 0,
    since a pair's relations are one edge of the graph; worded: with words beside other features.
    """
    ledger = Ledger(undirected=draw(st.booleans()), related=related, worded=worded)
    relation = st.sampled_from(["cites", "writes"])
    deltas = []
    for step in range(draw(st.integers(1, 5))):
        old = list(ledger.rows)
        new = [f"{step}.{i}" for i in range(draw(st.integers(0 if old else 1, 3)))]
        alive = old + new
        pairs = st.tuples(st.sampled_from(alive), st.sampled_from(alive))
        labels = st.sampled_from(["x", "y", 3, None])
        some = st.lists(st.sampled_from(old), unique=True, max_size=2) if old else st.just([])
        edges, updated = draw(st.lists(pairs, max_size=4)), draw(some)
        known = sorted({ledger.name(edge[:2]) for edge in ledger.edges})
        few = st.lists(st.sampled_from(known), unique=True, max_size=2) if known else st.just([])
        weigh, heavy = (
            related or draw(st.booleans()),
            [0.25, 1.0, 3.0, *(() if related else (0.0,))],
        )
        weights = [draw(st.sampled_from(heavy)) for _ in edges] if weigh else []
        named = {ledger.name(edge) for edge in edges}
        delta = Delta(
            nodes=new,
            features=features_of(len(new), seeded(step, "features"), worded=worded),
            labels=[draw(labels) for _ in new],
            edges=edges,
            weights=weights,
            removed_edges=[edge for edge in draw(few) if ledger.name(edge) not in named],
            updated=updated,
            updated_features=features_of(len(updated), seeded(step, "other"), worded=worded),
            words=WORDS if worded else NO_WORDS,
            late=[(node, draw(st.sampled_from(["x", "z"]))) for node in draw(some)],
            forgotten=draw(some),
            relations=[draw(relation) for _ in edges] if related else (),
            types=[type_of(node) for node in new] if related else (),
        )
        ledger.apply(delta)
        deltas.append(delta)
    return History(ledger.undirected, deltas, ledger)


def repacked(one: OnlineLearner) -> OnlineLearner:
    """Return a learner without places of forgotten nodes, the same one where there are none."""
    found = one.packed()
    if found is None:
        return one
    other = OnlineLearner(**json.loads(json.dumps(one.parameters)))
    arrays = {name: value.clone() for name, value in found.arrays.items()}
    other.restore(arrays, json.loads(json.dumps(found.about)))
    return other
