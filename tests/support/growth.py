"""Deltas of every kind, drawn from a seed, and what is compared of learners that took them in."""

import json
from random import Random

import torch

from evergraph.core.seeding import seeded
from evergraph.online.delta import Delta
from evergraph.online.learner import OnlineLearner

LABELS = {
    "class": ("x", "y", "z", None),
    "labels": (("x",), ("x", "z"), ("y",), None),
    "numbers": (0.5, 1.5, 2.0, None),
}


def growth(
    seed: int = 0,
    steps: int = 6,
    *,
    each: int = 3,
    dims: int = 3,
    kind: str = "class",
    weighted: bool = False,
    related: bool = False,
) -> list[Delta]:
    """Return deltas to be applied one after the other.

    Nodes with two edges each to one another or to earlier ones; and after each step but the first
    an edge that goes, other features, a late label and a node that goes.
    """
    draw, generator, alive, found = Random(seed), seeded(seed, "growth"), [], []
    for step in range(steps):
        new = [f"{step}.{place}" for place in range(each)]
        alive += new
        pairs = [(node, draw.choice(alive)) for node in new for _ in range(2)]
        edges = [pair for pair in pairs if pair[0] != pair[1]]
        found.append(
            Delta(
                nodes=new,
                features=torch.randn(each, dims, generator=generator),
                labels=[draw.choice(LABELS[kind]) for _ in new],
                edges=edges,
                weights=[draw.choice((0.25, 1.0, 3.0)) for _ in edges] if weighted else (),
                relations=[draw.choice(("cites", "likes")) for _ in edges] if related else (),
                types=[draw.choice(("paper", None)) for _ in new] if related else (),
            )
        )
        if step:
            other, late, gone = draw.sample(alive, 3)
            changed = torch.randn(1, dims, generator=generator)
            told = [(late, draw.choice(LABELS[kind][:-1]))]
            found.append(Delta(removed_edges=edges[:1], updated=[other], updated_features=changed))
            found.append(Delta(late=told, forgotten=[gone]))
            alive.remove(gone)
    return found


def bits(learner: OnlineLearner) -> dict[str, bytes]:
    about = json.dumps(learner.about(), sort_keys=True).encode()
    state = learner.state().items()
    return {name: value.contiguous().numpy().tobytes() for name, value in state} | {"about": about}


def restored(learner: OnlineLearner) -> OnlineLearner:
    """Return a learner that was made of another's parameters and state, as they are written."""
    other = OnlineLearner(**json.loads(json.dumps(learner.parameters)))
    state = {name: value.clone() for name, value in learner.state().items()}
    other.restore(state, json.loads(json.dumps(learner.about())))
    return other
