"""What every sampler promises, the law of those that draw, and the choices of those that do not."""

import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ResourceError
from evergraph.core.resources import Resources
from evergraph.graphs import Graph, estimate_reach_sizes, reach_sizes
from evergraph.memory import Candidates, EmbeddingMemory, SubgraphMemory, samplers
from evergraph.memory.samplers import CoverageSampler
from evergraph.memory.samplers.condensing import CondensingSampler
from graphs_to_draw import Pairs, few_each, generator, graph_of

EVERY = pytest.mark.parametrize("name", samplers.names())


def candidates_of(seed: int = 0, *, edges: int = 60, hops: int = 2) -> Candidates:
    """24 of 40 nodes, in no order: 12 of class 4, 9 of class 2 and 3 of class 7."""
    draw = generator(seed)
    pairs = torch.randint(40, (edges, 2), generator=draw).tolist()
    labels = torch.tensor([4] * 12 + [2] * 9 + [7] * 3)
    return Candidates(
        graph=graph_of(pairs, 40),
        nodes=torch.randperm(40, generator=draw)[:24],
        labels=labels[torch.randperm(24, generator=draw)],
        embeddings=torch.randn(24, 3, generator=draw),
        hops=hops,
    )


def tensors_of(candidates: Candidates) -> list[Tensor]:
    graph = candidates.graph
    parts = (candidates.nodes, candidates.labels, candidates.embeddings)
    return [t.clone() for t in (*parts, graph.indptr, graph.indices, graph.features)]


def kept_per_class(candidates: Candidates, rows: Tensor) -> dict[int, int]:
    labels = candidates.labels[rows].tolist()
    return {label: labels.count(label) for label in (4, 2, 7)}


@EVERY
@pytest.mark.parametrize(("edges", "hops"), [(60, 2), (0, 0)])
def test_exactly_the_budget_of_each_class_is_selected(name, edges, hops):
    candidates = candidates_of(edges=edges, hops=hops)
    before = tensors_of(candidates)
    rows = samplers.make(name).select(candidates, {4: 5, 2: 1, 7: 2}, generator=generator())
    assert rows.dtype == torch.int64
    assert rows.tolist() == sorted(set(rows.tolist()))  # ascending, none twice
    assert kept_per_class(candidates, rows) == {4: 5, 2: 1, 7: 2}
    after = tensors_of(candidates)
    assert all(a.equal(b) for a, b in zip(before, after, strict=True))


@EVERY
def test_budgets_of_nothing_and_of_more_than_there_is(name):
    candidates, sampler = candidates_of(), samplers.make(name)
    some = sampler.select(candidates, {4: 0, 2: 100, 7: 3}, generator=generator())
    assert kept_per_class(candidates, some) == {4: 0, 2: 9, 7: 3}
    for nothing in ({4: 0, 2: 0, 7: 0}, {}):
        rows = sampler.select(candidates, nothing, generator=generator())
        assert rows.shape == (0,)
        assert rows.dtype == torch.int64
    only = sampler.select(candidates, {2: 2}, generator=generator())
    assert kept_per_class(candidates, only) == {4: 0, 2: 2, 7: 0}


@EVERY
@few_each
@given(seed=st.integers(0, 10_000), budget=st.integers(0, 13))
def test_the_best_ranks_are_selected_by_the_generator(name, seed, budget):
    candidates, sampler = candidates_of(seed), samplers.make(name)
    budgets = dict.fromkeys((4, 2, 7), budget)
    before = torch.get_rng_state()
    rows = sampler.select(candidates, budgets, generator=generator(seed))
    assert rows.equal(samplers.make(name).select(candidates, budgets, generator=generator(seed)))
    ranks = sampler.rank(candidates, budgets, generator=generator(seed))
    assert (ranks.shape, ranks.dtype) == ((24,), torch.float64)
    assert not ranks.isnan().any()
    assert torch.get_rng_state().equal(before)
    for label in (4, 2, 7):
        own = (candidates.labels == label).nonzero().flatten()
        chosen = ranks[rows[candidates.labels[rows] == label]]
        assert len(chosen) == min(budget, len(own))
        assert chosen.sort().values.equal(ranks[own].sort().values[:budget])


@EVERY
def test_what_is_stored_is_a_row_a_choice_and_the_generator_decides(name):
    candidates, sampler = candidates_of(), samplers.make(name)
    before, state = tensors_of(candidates), torch.get_rng_state()
    chosen = sampler.select(candidates, {4: 5, 2: 1, 7: 2}, generator=generator())
    vectors = sampler.vectors(candidates, chosen, generator=generator())
    assert vectors.shape == (8, 3)
    assert vectors.dtype == torch.float32
    assert bool(vectors.isfinite().all())
    assert not vectors.requires_grad
    synthetic = isinstance(sampler, CondensingSampler)
    assert vectors.equal(candidates.embeddings[chosen]) is not synthetic
    assert vectors.equal(sampler.vectors(candidates, chosen, generator=generator()))
    nothing = sampler.vectors(candidates, chosen[:0], generator=generator())
    assert nothing.shape == (0, 3)
    after = tensors_of(candidates)
    assert all(a.equal(b) for a, b in zip(before, after, strict=True))
    assert torch.get_rng_state().equal(state)


# Eight nodes, copied many times: each copy is a class of its own with the candidates 0, 1 and 2.
#   0 alone;   3 -> 1;   4 -> 2 and 5 -> 2;   6 -> 4 and 7 -> 5
# Within two hops they gather from 1, 2 and 5 nodes, themselves included; 1 + degree is 1, 2, 3.
COPY: Pairs = [(3, 1), (4, 2), (5, 2), (6, 4), (7, 5)]
COPIES = 20_000
# One draw: w / W. Two draws: a node is left out if the other two are drawn, in either order.
#   weights 1 2 5:  {0, 1} with 1/8 · 2/7 + 2/8 · 1/6 = 13/168
#                   {0, 2} with 1/8 · 5/7 + 5/8 · 1/3 = 25/84
#                   {1, 2} with 2/8 · 5/6 + 5/8 · 2/3 = 5/8
#   weights 1 2 3:  {0, 1} with 1/6 · 2/5 + 2/6 · 1/4 = 3/20
#                   {0, 2} with 1/6 · 3/5 + 3/6 · 1/3 = 4/15
#                   {1, 2} with 2/6 · 3/4 + 3/6 · 2/3 = 7/12
INCLUSION = {
    ("coverage", 1): [1 / 8, 2 / 8, 5 / 8],
    ("coverage", 2): [1 - 5 / 8, 1 - 25 / 84, 1 - 13 / 168],
    ("degree", 1): [1 / 6, 2 / 6, 3 / 6],
    ("degree", 2): [1 - 7 / 12, 1 - 4 / 15, 1 - 3 / 20],
    ("uniform", 1): [1 / 3, 1 / 3, 1 / 3],
    ("uniform", 2): [2 / 3, 2 / 3, 2 / 3],
}


def copies() -> Candidates:
    offsets = 8 * torch.arange(COPIES)
    sources, targets = (torch.tensor(side) for side in zip(*COPY, strict=True))
    graph = Graph.from_edges(
        torch.stack(
            [
                (sources[None] + offsets[:, None]).flatten(),
                (targets[None] + offsets[:, None]).flatten(),
            ]
        ),
        features=torch.zeros(8 * COPIES, 1),
        labels=torch.full((8 * COPIES,), -1),
    )
    nodes = (torch.arange(3)[None] + offsets[:, None]).flatten()
    return Candidates(graph, nodes, nodes // 8, torch.zeros(len(nodes), 1), hops=2)


@pytest.fixture(scope="module")
def many() -> Candidates:
    return copies()


@pytest.mark.parametrize("name", ["coverage", "degree", "uniform"])
def test_inclusion_follows_draws_without_replacement(name, many):
    ranks = samplers.make(name).rank(many, {}, generator=generator(5)).reshape(COPIES, 3)
    order = ranks.argsort(dim=1)
    for draws in (1, 2):
        chosen = order[:, :draws].flatten().bincount(minlength=3) / COPIES
        for frequency, chance in zip(chosen.tolist(), INCLUSION[name, draws], strict=True):
            assert abs(frequency - chance) < 4 * math.sqrt(chance * (1 - chance) / COPIES)


def test_every_mergeable_sampler_has_its_law_tested():
    mergeable = {name for name in samplers.names() if samplers.resolve(name).mergeable}
    assert mergeable == {name for name, _ in INCLUSION}


def test_weights_by_hand():
    graph = graph_of(COPY, 8, undirected=False)
    nodes = torch.tensor([2, 0, 1, 4])
    one = Candidates(graph, nodes, torch.zeros(4).long(), torch.zeros(4, 1), hops=2)
    near = Candidates(graph, nodes, torch.zeros(4).long(), torch.zeros(4, 1), hops=1)
    assert samplers.make("coverage").weigh(one).tolist() == [5, 1, 2, 2]
    assert samplers.make("coverage").weigh(near).tolist() == [3, 1, 2, 2]
    assert samplers.make("degree").weigh(one).tolist() == [3, 1, 2, 2]
    assert samplers.make("uniform").weigh(one).tolist() == [1, 1, 1, 1]


def test_coverage_takes_exact_or_estimated_sizes():
    candidates = candidates_of()
    graph, nodes = candidates.graph, candidates.nodes
    exact, estimated = (CoverageSampler(reach=way) for way in ("exact", "estimated"))
    assert (CoverageSampler().reach, estimated.reach) == ("auto", "estimated")
    assert exact.weigh(candidates).equal(reach_sizes(graph, nodes, hops=2).double())
    assert CoverageSampler().weigh(candidates).equal(exact.weigh(candidates))
    rounded = estimate_reach_sizes(graph, nodes, hops=2).round()
    assert estimated.weigh(candidates).equal(rounded)
    assert not rounded.equal(exact.weigh(candidates))
    parts = [estimated.weigh(candidates.take(slice(a, a + 7))) for a in range(0, 24, 7)]
    assert torch.cat(parts).equal(rounded)  # batches see the sizes that the whole would


def test_greedy_says_that_memory_does_not_suffice(monkeypatch):
    monkeypatch.setattr(Resources, "left", 1000)
    with pytest.raises(ResourceError, match="greedy coverage of 24 candidates takes"):
        greedy(candidates_of(), {4: 1})


def test_mean_feature_by_hand():
    # class 0 at (0,0) (4,0) (5,3): mean (3,1); class 1 at (0,0) and (2,0): mean (1,0)
    points = torch.tensor([[0.0, 0], [0, 0], [4, 0], [2, 0], [5, 3]])
    labels = torch.tensor([0, 1, 0, 1, 0])
    candidates = Candidates(graph_of([], 5), torch.arange(5), labels, points, hops=2)
    sampler = samplers.make("mean-feature")
    ranks = sampler.rank(candidates, {0: 1, 1: 1}, generator=generator())
    assert ranks.tolist() == pytest.approx([10**0.5, 1, 2**0.5, 1, 8**0.5])
    assert sampler.select(candidates, {0: 2, 1: 2}, generator=generator()).tolist() == [1, 2, 3, 4]


def greedy(candidates: Candidates, budgets: dict[int, int]) -> Tensor:
    return samplers.make("greedy-coverage").rank(candidates, budgets, generator=generator())


def test_greedy_by_hand():
    # 1 - 0 - 2, 3 - 4 and 5 apart: 0 adds three, 3 two, 5 one; 1 covers two, but adds nothing
    graph = graph_of([(0, 1), (0, 2), (3, 4)], 6)
    nodes = torch.tensor([5, 1, 0, 3])
    one = Candidates(graph, nodes, torch.zeros(4).long(), torch.zeros(4, 1), hops=1)
    assert greedy(one, {0: 4}).tolist() == [2, 3, 0, 1]
    assert greedy(one, {0: 2}).tolist() == [math.inf, math.inf, 0, 1]


def test_greedy_shares_coverage_between_classes():
    # 0 is joined to 1, 2 and 3; 1 - 2; and 4 - 5 apart. Alone, 1 covers {0, 1, 2} and 4 {4, 5};
    # once class 0 has taken node 0, 1 adds nothing and 4 adds two.
    graph = graph_of([(0, 1), (0, 2), (0, 3), (1, 2), (4, 5)], 6)
    nodes, labels = torch.tensor([1, 4, 0]), torch.tensor([1, 1, 0])
    together = Candidates(graph, nodes, labels, torch.zeros(3, 1), hops=1)
    assert greedy(together, {0: 1, 1: 1}).tolist() == [math.inf, 1, 0]
    alone = together.take(torch.tensor([0, 1]))
    assert greedy(alone, {1: 1}).tolist() == [0, math.inf]


def dense_egos(pairs: Pairs, nodes: int, hops: int, *, undirected: bool) -> list[set[int]]:
    """Ego-subnetworks from the definition: a step goes to those that flow into a node."""
    into = {node: {node} for node in range(nodes)}
    for source, target in pairs:
        into[target].add(source)
        if undirected:
            into[source].add(target)
    egos = [{node} for node in range(nodes)]
    for _ in range(hops):
        egos = [set().union(*(into[other] for other in ego)) for ego in egos]
    return egos


@given(
    pairs=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=25),
    hops=st.integers(0, 3),
    undirected=st.booleans(),
    labels=st.lists(st.integers(0, 2), min_size=9, max_size=9),
    budgets=st.fixed_dictionaries({label: st.integers(0, 5) for label in range(3)}),
)
def test_greedy_takes_at_every_step_what_a_search_of_all_candidates_would(
    pairs, hops, undirected, labels, budgets
):
    nodes = torch.tensor([11, 3, 7, 0, 5, 9, 1, 2, 10])
    candidates = Candidates(
        graph_of(pairs, 12, undirected=undirected),
        nodes,
        torch.tensor(labels),
        torch.zeros(9, 1),
        hops=hops,
    )
    ranks = greedy(candidates, budgets)
    taken = [int(row) for row in ranks.argsort() if ranks[row].isfinite()]
    assert ranks[taken].tolist() == list(range(len(taken)))
    egos = dense_egos(pairs, 12, hops, undirected=undirected)
    left, covered, free = dict(budgets), set[int](), set(range(9))
    for row in taken:
        # Of equals any may be taken, so the gain is compared and not the node.
        gains = {r: len(egos[int(nodes[r])] - covered) for r in free if left[labels[r]]}
        assert row in gains
        assert gains[row] == max(gains.values())
        covered |= egos[int(nodes[row])]
        left[labels[row]] -= 1
        free.remove(row)
    assert not any(left[labels[row]] for row in free)  # every budget was used up


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("coverage", {"reach": "auto"}),
        ("distribution-matching", {"features": 256, "start": "herding", "steps": 50, "lr": 0.1}),
        ("embedding-coverage", {"radius": 0.5}),
        (
            "gradient-matching",
            {"heads": 8, "sharpness": 1.0, "start": "herding", "steps": 50, "lr": 0.03},
        ),
        ("influence", {"damping": 0.01}),
    ],
)
def test_published_numbers_rest_on_these_defaults(name, expected):
    sampler = samplers.make(name)
    assert set(inspect.signature(type(sampler)).parameters) == set(expected)
    assert {option: getattr(sampler, option) for option in expected} == expected


def test_memories_keep_as_many_as_their_papers_unless_told():
    embeddings, subgraphs = EmbeddingMemory(), SubgraphMemory()
    assert (embeddings.budget, embeddings.sampler.name) == (400, "coverage")
    assert (subgraphs.budget, subgraphs.sampler.name) == (100, "uniform")
