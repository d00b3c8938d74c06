"""WordNet grows file by file into a service that is killed halfway, and loses nothing.

    python examples/growing_wordnet.py [--nodes 20000] [--batch 500]

Feeds WordNet in the order of its files (one class after the other) to ``evergraph serve``, kills
the service with SIGKILL in the middle, starts it again, continues, and asks for the classes of
nodes whose label it was never given. Then the same without a kill: both must agree on every node.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.online import Delta
from evergraph.server.client import Client

HELD_OUT = 0.2  # share of nodes whose label the service never gets


@dataclass(frozen=True, eq=False)
class Story:
    """What happens to the graph, and what is asked at the end."""

    deltas: list[Delta]
    asked: list[int]
    answers: list[int]


def tell(graph: Graph, *, nodes: int, batch: int) -> Story:
    """Cut WordNet into deltas, file by file; every edge comes with the later of its two ends."""
    first = graph.labels.argsort(stable=True)[:nodes]
    part = graph.subgraph(first.sort().values)
    order = part.labels.argsort(stable=True)
    hidden = torch.rand(part.num_nodes, generator=seeded(0, "held out")) < HELD_OUT
    deltas, met = [], torch.zeros(part.num_nodes, dtype=torch.bool)
    for number, new in enumerate(order.split(batch)):
        met[new] = True
        edges = tuple(
            (int(node), int(other))
            for node in new
            for other in part.neighbours(int(node))
            if met[int(other)]
        )
        labels = tuple(None if hidden[n] else int(part.labels[n]) for n in new)
        deltas.append(
            Delta(
                nodes=tuple(new.tolist()),
                features=part.features[new],
                labels=labels,
                edges=edges,
                key=f"wordnet-{number}",
            )
        )
    asked = hidden.nonzero().flatten()
    return Story(deltas, asked.tolist(), part.labels[asked].tolist())


@contextmanager
def service(folder: Path) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """Start ``evergraph serve`` on a free port of this machine, and stop it at the end."""
    command = [sys.executable, "-m", "evergraph.cli.app", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "listening on" in line:
            break
    else:
        raise SystemExit(f"the service did not start: {''.join(said)}")
    try:
        yield Client(line.split()[-1]), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def feed(client: Client, deltas: list[Delta]) -> None:
    """Send deltas one after the other."""
    for delta in deltas:
        client.submit(delta)


def answers(client: Client, story: Story) -> list[int]:
    """Ask for the classes of nodes whose label was never told."""
    return [int(row["label"]) for row in client.predict(story.asked)]


def killed_halfway(folder: Path, story: Story) -> list[int]:
    """Feed half, kill the service, start it again, send the last delta twice, and go on."""
    half = len(story.deltas) // 2
    with service(folder) as (client, process):
        feed(client, story.deltas[:half])
        process.kill()
        process.wait()
    print(f"killed after {half} of {len(story.deltas)} deltas; starting again")
    with service(folder) as (client, _):
        known = client.status()["seq"]
        assert known == half, f"{half} deltas were acknowledged, {known} are there"
        feed(client, story.deltas[half - 1 :])  # the first of these counts once
        return answers(client, story)


def uninterrupted(folder: Path, story: Story) -> list[int]:
    """Feed everything to a service that lives."""
    with service(folder) as (client, _):
        feed(client, story.deltas)
        return answers(client, story)


def main() -> None:
    """Tell the story twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20_000, help="of WordNet's 117,659")
    parser.add_argument("--batch", type=int, default=500, help="nodes a delta")
    given = parser.parse_args()
    story = tell(load("wordnet"), nodes=given.nodes, batch=given.batch)
    print(f"{given.nodes} nodes in {len(story.deltas)} deltas, {len(story.asked)} labels held back")
    with tempfile.TemporaryDirectory() as place:
        found = killed_halfway(Path(place, "killed"), story)
        expected = uninterrupted(Path(place, "whole"), story)
    right = sum(a == b for a, b in zip(found, story.answers, strict=True)) / len(found)
    print(f"accuracy on held-back labels {100 * right:.1f} %, killed or not")
    if found != expected:
        raise SystemExit("the killed service answers otherwise than the one that lived")


if __name__ == "__main__":
    main()
