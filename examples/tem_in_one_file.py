"""The whole method of the paper in one file of plain torch: PDGNN with embedding memory.

*Topology-aware Embedding Memory for Continual Learning on Expanding Networks* (KDD 2024), class-IL,
read from top to bottom:

    embed           f_topo, strategy S1: E = Â^L X
    coverage_sample Algorithm 1: nodes that cover more of the graph are kept more often
    MLP             f_out
    learn           the loss over the current task and the memory, weighted by class sizes
    main            the stream of tasks and the accuracy matrix

    python examples/tem_in_one_file.py                    a small random graph
    python examples/tem_in_one_file.py ../graph.npz       edge_index [2, E], x [N, D], y [N]

It shares no code with the library; a test checks that both give the same numbers.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import Tensor

HOPS, BUDGET, HIDDEN, EPOCHS, LR, WEIGHT_DECAY = 2, 400, 256, 200, 0.005, 5e-4


def propagation_matrix(edges: Tensor, nodes: int) -> Tensor:
    """Â = D^-1/2 (A + I) D^-1/2 as a sparse matrix; edges [2, E] run both ways.  [N, N]"""
    loops = torch.arange(nodes).repeat(2, 1)
    pairs = torch.unique(torch.cat([edges, edges.flip(0), loops], dim=1), dim=1)
    degree = torch.bincount(pairs[0], minlength=nodes).float()
    weights = (degree[pairs[0]] * degree[pairs[1]]).rsqrt()
    return torch.sparse_coo_tensor(pairs, weights, (nodes, nodes), check_invariants=True)


def embed(matrix: Tensor, features: Tensor) -> Tensor:
    """Topology-aware embeddings: one vector stands for a node's whole ego-subnetwork.  [N, D]"""
    for _ in range(HOPS):
        features = torch.sparse.mm(matrix, features)
    return features


def ego_sizes(matrix: Tensor) -> Tensor:
    """How many nodes lie within L hops of each, itself included.  [N]

    Dense, N x N: short to read and fine for a small task; the library does it in blocks.
    """
    step = matrix.to_dense() > 0
    reached = torch.eye(len(step), dtype=torch.bool)
    for _ in range(HOPS):
        reached = reached.float() @ step.float() > 0
    return reached.sum(1)


def coverage_sample(sizes: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Algorithm 1: draw without replacement, p_v proportional to v's ego size.  [count]"""
    return torch.multinomial(sizes.double(), min(count, len(sizes)), generator=generator)


class MLP(torch.nn.Module):
    """f_out: embeddings to scores, without biases as in the released code."""

    def __init__(self, dims: int, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator
        self.inner = self._draw(HIDDEN, dims)
        self.outer = self._draw(0, HIDDEN)

    def _draw(self, outputs: int, inputs: int) -> torch.nn.Parameter:
        bound = inputs**-0.5
        empty = torch.empty(outputs, inputs)
        return torch.nn.Parameter(empty.uniform_(-bound, bound, generator=self.generator))

    def grow(self, classes: int) -> None:
        """Make room for new classes and keep what was learned of the old ones."""
        fresh = self._draw(classes, HIDDEN).detach()
        fresh[: len(self.outer)] = self.outer.detach()
        self.outer = torch.nn.Parameter(fresh)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Scores of every class seen.  [n, D] -> [n, classes]"""
        return torch.relu(embeddings @ self.inner.T) @ self.outer.T


def replay_loss(model: MLP, embeddings: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy over current and stored embeddings, each class weighing the same."""
    sizes = torch.bincount(targets, minlength=len(model.outer)).clamp_min(1)
    return torch.nn.functional.cross_entropy(model(embeddings), targets, weight=1 / sizes.float())


def carried_adam(model: MLP, moments: dict[str, dict[str, Tensor]]) -> torch.optim.Adam:
    """One Adam for the whole sequence: moments of new classes start at zero."""
    adam = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    for name, parameter in model.named_parameters():
        if name in moments:
            state = dict(moments[name])
            for kind in ("exp_avg", "exp_avg_sq"):
                padded = torch.zeros_like(parameter)
                padded[: len(state[kind])] = state[kind]
                state[kind] = padded
            adam.state[parameter] = state
    return adam


def balanced_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Mean over classes of the share that is right."""
    recalls = [(predicted[labels == c] == c).float().mean() for c in labels.unique()]
    return float(torch.stack(recalls).mean())


def tasks_of(
    edges: Tensor, features: Tensor, labels: Tensor, split: dict[str, Tensor]
) -> list[tuple[Tensor, ...]]:
    """Cut the graph into tasks of two classes; edges between tasks are dropped.

    Returns for each task: embeddings, labels, ego sizes, training mask, test mask.
    """
    tasks = []
    for first in range(0, int(labels.max()), 2):
        nodes = ((labels == first) | (labels == first + 1)).nonzero().flatten()
        place = torch.full((len(labels),), -1)
        place[nodes] = torch.arange(len(nodes))
        inside = place[edges][:, (place[edges] >= 0).all(0)]
        matrix = propagation_matrix(inside, len(nodes))
        masks = (torch.isin(nodes, split[part]) for part in ("train", "test"))
        tasks.append((embed(matrix, features[nodes]), labels[nodes], ego_sizes(matrix), *masks))
    return tasks


def learn(
    edges: Tensor, features: Tensor, labels: Tensor, split: dict[str, Tensor], *, seed: int = 0
) -> list[list[float]]:
    """Run PDGNN-TEM over the stream; return the rows of the accuracy matrix."""
    generator = torch.Generator().manual_seed(seed)
    model = MLP(features.shape[1], generator)
    memory: list[tuple[Tensor, Tensor]] = []  # TEM: (embeddings, classes), a pair a class
    moments: dict[str, dict[str, Tensor]] = {}
    tasks = tasks_of(edges, features, labels, split)
    matrix = []
    for index, (embeddings, targets, sizes, train, _) in enumerate(tasks):
        model.grow(2 * index + 2)
        adam = carried_adam(model, moments)
        inputs = torch.cat([embeddings[train], *(kept for kept, _ in memory)])
        answers = torch.cat([targets[train], *(kept for _, kept in memory)])
        for _ in range(EPOCHS):
            adam.zero_grad()
            replay_loss(model, inputs, answers).backward()
            adam.step()
        moments = {name: adam.state[p] for name, p in model.named_parameters()}
        for label in (2 * index, 2 * index + 1):
            candidates = (train & (targets == label)).nonzero().flatten()
            chosen = candidates[coverage_sample(sizes[candidates], BUDGET, generator)]
            memory.append((embeddings[chosen], targets[chosen]))
        with torch.no_grad():
            row = [
                balanced_accuracy(model(e[test]).argmax(1), y[test])
                for e, y, _, _, test in tasks[: index + 1]
            ]
        matrix.append(row)
        print(f"after task {index}: AA {100 * sum(row) / len(row):.1f}")
    return matrix


def random_split(labels: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """60 % training, 20 % validation, 20 % test."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, _, test = order.tensor_split([int(0.6 * len(order)), int(0.8 * len(order))])
    return {"train": train, "test": test}


def random_graph(nodes: int = 1200, classes: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """A graph whose edges mostly stay within classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(nodes) % classes
    source = torch.randint(nodes, (2 * nodes,), generator=generator)
    jump = classes * torch.randint(nodes // classes, source.shape, generator=generator)
    target = (source + jump + (torch.rand(source.shape, generator=generator) > 0.8)) % nodes
    centres = torch.randn(classes, 16, generator=generator)
    features = centres[labels] + 4 * torch.randn(nodes, 16, generator=generator)
    return torch.stack([source, target])[:, source != target], features, labels


if __name__ == "__main__":
    if len(sys.argv) > 1:
        arrays = np.load(sys.argv[1])
        graph = [torch.from_numpy(arrays[key]) for key in ("edge_index", "x", "y")]
        edge_list, node_features, classes_of = graph[0].long(), graph[1], graph[2].long()
    else:
        edge_list, node_features, classes_of = random_graph()
    learn(edge_list, node_features, classes_of, random_split(classes_of))
