"""Draw docs/images/growing.png: a part of WordNet grows, and is classified while it does.

    python scripts/growing_picture.py [--out FILE]

Five kinds of verbs arrive one after the other. Every second verb comes with its label, the others
never do. After each kind ``ContinualNodeClassifier`` predicts all verbs that have come; right and
wrong are counted among those without a label. The same code gives the same picture.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import numpy.typing as npt
import torch
from matplotlib import pyplot
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

import evergraph as eg

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "growing.png"
KINDS = {
    37: "feeling",
    34: "eating",
    38: "moving",
    39: "perceiving",
    35: "touching",
}  # as they come
SHADES = ("#0b8f82", "#d95f02", "#7570b3", "#c99700", "#c2185b")
COLOURS = dict(zip(KINDS.values(), SHADES, strict=True))
PER_KIND = 60  # as many dots as can still be told apart at a quarter of a page
PAPER, INK = "#ffffff", "#24292f"  # a background of its own: pages may be dark

Places = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Frame:
    """What is known and predicted after one kind has come."""

    known: Integers
    predicted: npt.NDArray[np.str_]


def chosen_verbs(wordnet: eg.Graph) -> eg.Graph:
    """Return a connected part of WordNet, PER_KIND verbs of each kind, where kinds meet most."""
    verbs = wordnet.subgraph(torch.isin(wordnet.labels, torch.tensor([*KINDS])).nonzero().flatten())
    kinds, pairs = verbs.labels.numpy(), pairs_of(verbs)
    net = networkx.Graph(pairs.tolist())
    border_verbs = sorted({int(first) for first, second in pairs if kinds[first] != kinds[second]})
    parts = [_nearest_verbs(net, start, kinds) for start in border_verbs]
    best = max(parts, key=lambda part: (len(part), _count_borders(net.subgraph(part), kinds)))
    return verbs.subgraph(torch.tensor(sorted(best)))


def _nearest_verbs(net: networkx.Graph, start: int, kinds: Integers) -> list[int]:
    """Return the verbs nearest to one, breadth first, until there are enough of each kind."""
    room = dict.fromkeys(KINDS, PER_KIND)
    verbs: dict[int, None] = {}
    queue = deque([start])
    while queue:
        verb = queue.popleft()
        if verb not in verbs and room[int(kinds[verb])]:
            room[int(kinds[verb])] -= 1
            verbs[verb] = None
            queue.extend(sorted(net[verb]))
    return list(verbs)


def _count_borders(net: networkx.Graph, kinds: Integers) -> int:
    return sum(int(kinds[first] != kinds[second]) for first, second in net.edges)


def pairs_of(graph: eg.Graph) -> Integers:
    """Return each edge of an undirected graph once, [pairs, 2]."""
    pairs = np.stack([graph.edge_rows().numpy(), graph.indices.numpy()], axis=1)
    return pairs[pairs[:, 0] < pairs[:, 1]].astype(np.int64)


def classified(graph: eg.Graph, kinds: npt.NDArray[np.str_], labelled: Any) -> list[Frame]:
    """Let the classifier meet one kind after the other, and predict all it has met."""
    model = eg.ContinualNodeClassifier()
    pairs = pairs_of(graph)
    frames: list[Frame] = []
    arrival = np.array([[*KINDS.values()].index(kind) for kind in kinds])
    for step in range(len(KINDS)):
        new = np.flatnonzero(arrival == step)
        labels = [str(kinds[n]) if labelled[n] else None for n in new]
        edges = pairs[arrival[pairs].max(axis=1) == step]  # with the later of their ends
        model.partial_fit(new, graph.features[torch.from_numpy(new)], labels, edges)
        if step:  # of a single kind there is nothing to tell apart
            known = np.flatnonzero(arrival <= step)
            frames.append(Frame(known, np.asarray(model.predict(known))))
    return frames


def drawing(
    frames: Sequence[Frame],
    pairs: Integers,
    kinds: npt.NDArray[np.str_],
    labelled: Any,
    layout: Places,
) -> Any:
    """Return the frames side by side: dots in the colour of what is predicted, crosses if wrong."""
    figure, axes = pyplot.subplots(1, len(frames), figsize=(13, 4.1), facecolor=PAPER)
    for ax, frame in zip(axes, frames, strict=True):
        shown = np.isin(pairs, frame.known).all(axis=1)
        ax.add_collection(
            LineCollection(list(layout[pairs[shown]]), color="#c5cad0", lw=0.6, zorder=1)
        )
        unlabelled = ~labelled[frame.known]
        right = frame.predicted == kinds[frame.known]
        shades = np.array([COLOURS[kind] for kind in frame.predicted])
        for is_shown, size, face in ((~unlabelled, 9, shades), (unlabelled & right, 26, shades)):
            ax.scatter(*layout[frame.known[is_shown]].T, s=size, c=face[is_shown], lw=0, zorder=2)
        wrong = unlabelled & ~right
        ax.scatter(
            *layout[frame.known[wrong]].T,
            s=34,
            c=shades[wrong],
            marker="X",
            edgecolors=INK,
            lw=0.7,
            zorder=3,
        )
        share = 100 * (unlabelled & right).sum() / unlabelled.sum()
        count_of_kinds = len(set(kinds[frame.known]))
        ax.set_title(
            f"{len(frame.known)} verbs, {count_of_kinds} kinds\n{share:.0f} % of the unlabelled right",
            color=INK,
            fontsize=12,
        )
        ax.set(xlim=(layout[:, 0].min() - 0.05, layout[:, 0].max() + 0.05), aspect="equal")
        ax.set_ylim(layout[:, 1].min() - 0.05, layout[:, 1].max() + 0.05)
        ax.axis("off")
    entries = [_key(kind, "o", 8, colour) for kind, colour in COLOURS.items()]
    entries += [_key("came with its label", "o", 4), _key("predicted", "o", 8)]
    entries += [_key("predicted wrongly", "X", 8)]
    figure.legend(
        handles=entries,
        loc="lower center",
        ncols=len(entries),
        frameon=False,
        labelcolor=INK,
        fontsize=11,
        handletextpad=0.2,
        columnspacing=1.4,
    )
    figure.subplots_adjust(left=0.01, right=0.99, top=0.86, bottom=0.1, wspace=0.03)
    return figure


def _key(name: str, marker: str, size: float, colour: str = "#8b949e") -> Line2D:
    return Line2D([], [], ls="", marker=marker, ms=size, mec="none", color=colour, label=name)


def main() -> None:
    """Learn, predict and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=OUT)
    out: Path = parser.parse_args().out
    graph = chosen_verbs(eg.load("wordnet", dims=128))
    kinds = np.array([KINDS[int(label)] for label in graph.labels])
    labelled = np.random.default_rng(0).random(graph.num_nodes) < 0.5
    frames = classified(graph, kinds, labelled)
    net = networkx.Graph(pairs_of(graph).tolist())
    net.add_nodes_from(range(graph.num_nodes))
    layout = networkx.kamada_kawai_layout(net)
    positions = np.array([layout[node] for node in range(graph.num_nodes)])
    figure = drawing(frames, pairs_of(graph), kinds, labelled, positions)
    figure.savefig(out, dpi=110, facecolor=PAPER)
    print(f"{out}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
