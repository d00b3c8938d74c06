"""The paper's Definition 1 and Theorem 1, held to numerically."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, normalised, reach
from evergraph.methods import TEM
from evergraph.nn import MLP, PDGNN
from evergraph.streams import GraphStream
from evergraph.topology import APPNP, PPR, S2GC, SGC, TopologyEncoder
from evergraph.training import Trainer
from evergraph.training.trainer import EVERYTHING


def random_graph(seed: int, nodes: int = 10) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    return Graph.from_edges(
        torch.randint(nodes, (2, 2 * nodes), generator=generator),
        features=torch.rand(nodes, 4, generator=generator) + 0.1,
        labels=torch.randint(2, (nodes,), generator=generator),
        undirected=True,
    )


def strategy(encoder: TopologyEncoder, graph: Graph) -> Tensor:
    """Π of the paper: what the encoder does to the identity matrix.  [nodes, nodes]"""
    eye = torch.eye(graph.num_nodes)
    return encoder.encode(Graph(graph.indptr, graph.indices, eye, graph.labels))


def ego_embedding(graph: Graph, node: int, hops: int) -> Tensor:
    """Encode one node from its stored ego-subnetwork: nodes, features, weighted edges, no more."""
    ego = reach(graph, torch.tensor([node]), hops=hops)[0]
    adjacency = normalised(graph).to_dense()[ego][:, ego]
    state = graph.features[ego]
    for _ in range(hops):
        state = adjacency @ state
    return state[(ego == node).nonzero()[0, 0]]


@given(seed=st.integers(0, 1000), hops=st.integers(0, 3))
def test_an_ego_subnetwork_gives_the_embedding_that_stands_for_it(seed, hops):
    graph = random_graph(seed)
    stored = SGC(hops=hops).encode(graph)
    rebuilt = torch.stack([ego_embedding(graph, v, hops) for v in range(graph.num_nodes)])
    torch.testing.assert_close(stored, rebuilt, atol=1e-5, rtol=1e-4)


def test_embeddings_train_as_ego_subnetworks_do(small_graph):
    """Definition 1, gradient for gradient, over a whole second task of ``tem``."""
    stream = GraphStream(small_graph)
    learners = [
        TEM(
            backbone=PDGNN(scaling="none", dropout=0.0),
            trainer=Trainer(epochs=3, batch_size=None),
            generator=seeded(0, "definition"),
        )
        for _ in range(2)
    ]
    first, second = learners
    for learner in learners:
        learner.fit_task(stream.open(0))
    # The second learner's memory is rebuilt from the ego-subnetworks of the nodes it stored.
    task = stream.open(0)
    graph, nodes = task.graph, torch.searchsorted(task.ids, second.memory.nodes_).tolist()
    second.memory.embeddings_ = torch.stack([ego_embedding(graph, v, 2) for v in nodes])
    for learner in learners:
        learner.begin_task(stream.open(1))
        learner.loss(EVERYTHING).backward()
    for ours, theirs in zip(
        first.named_parameters().values(), second.named_parameters().values(), strict=True
    ):
        assert float(ours.grad.abs().max()) > 0
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("encoder", [SGC(), S2GC(), PPR(), APPNP()], ids=lambda e: e.name)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_theorem_1_1_training_on_an_embedding_trains_every_node_of_its_ego(encoder, seed):
    """∇ l(f(e_v), y_v) is, for every w of v's ego-subnetwork, that of w with pseudo-label y_v.

    w sees itself as ever, x_w π(w,w), but scaled by π(v,w) / π(w,w), and beside it v's
    ego-subnetwork in place of its own: f(x_w π(w,w) · π(v,w)/π(w,w) + Σ_{u≠w} x_u π(v,u)). For any
    f and l; here an MLP and the cross-entropy. Two things can fail: that nothing but the
    ego-subnetwork and π enters e_v, and that every node sees itself, π(w,w) > 0.
    """
    graph, node, label = random_graph(seed), 0, torch.tensor(1)
    weights = strategy(encoder, graph)  # π
    head = MLP(4, hidden=(5,), bias=True, dropout=0.0, generator=seeded(seed, "head"))
    head.grow(3, generator=seeded(seed, "head"))

    def gradient(inputs):
        head.zero_grad()
        cross_entropy(head(inputs), label).backward()
        grads = [p.grad for p in head.parameters()]
        return torch.cat([g.flatten() for g in grads if g is not None])

    embedded = gradient(encoder.encode(graph)[node])
    assert float(embedded.norm()) > 0
    ego = reach(graph, torch.tensor([node]), hops=encoder.hops)[0].tolist()
    for w in ego:
        own = graph.features[w] * weights[w, w]
        around = sum(graph.features[u] * weights[node, u] for u in ego if u != w)
        pseudo = gradient(own * (weights[node, w] / weights[w, w]) + around)
        torch.testing.assert_close(embedded, pseudo, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("encoder", [SGC(), S2GC(), PPR(), APPNP()], ids=lambda e: e.name)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_theorem_1_2_training_on_an_embedding_is_weighted_training_on_its_ego(encoder, seed):
    """∇ log f(e_v)_k = Σ_w [f(x_w)_k π(v,w) / Σ_u f(x_u π(v,u))_k] · ∇ log f(x_w)_k, f linear.

    The theorem's loss takes the logarithm of the linear score itself, without a softmax.
    """
    graph, node, label = random_graph(seed), 0, 1
    weights = strategy(encoder, graph)[node]  # π(v, ·)
    head = MLP(4, hidden=(), bias=False, generator=seeded(seed, "head"))
    head.grow(2, generator=seeded(seed, "head"))
    with torch.no_grad():
        head.out.weight.abs_()  # scores must be positive for their logarithm to exist

    def gradient(inputs):
        head.zero_grad()
        head(inputs)[label].log().backward()
        return head.out.weight.grad.clone()

    embedded = gradient(encoder.encode(graph)[node])
    with torch.no_grad():
        scores = head(graph.features)[:, label] * weights
    shares = scores / scores.sum()
    summed = torch.zeros_like(embedded)
    for w in range(graph.num_nodes):
        summed += shares[w] * gradient(graph.features[w])
    torch.testing.assert_close(embedded, summed, atol=1e-5, rtol=1e-3)
    assert set(weights.nonzero().flatten().tolist()) <= set(
        reach(graph, torch.tensor([node]), hops=2)[0].tolist()
    )
