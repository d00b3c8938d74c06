"""TEM: what is kept, in one look or in many batches, and what it takes up."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph, covered_nodes, reach
from evergraph.memory import (
    Candidates,
    EmbeddingMemory,
    MemoryUsage,
    class_budgets,
    coverage_ratio,
    samplers,
)
from evergraph.memory.samplers import UniformSampler
from graphs_to_draw import Pairs, few_each, generator, graph_of, path_pairs


def candidates_of(labels: list[int], pairs: Pairs | None = None, *, hops: int = 1) -> Candidates:
    """Node i has the embedding (i, label, 0, 0), so that a row can be traced back."""
    count = len(labels)
    embeddings = torch.zeros(count, 4)
    embeddings[:, 0] = torch.arange(count)
    embeddings[:, 1] = torch.tensor(labels)
    return Candidates(
        graph_of(pairs or [], count), torch.arange(count), torch.tensor(labels), embeddings, hops
    )


def sizes_of(labels: list[int]) -> dict[int, int]:
    return {label: labels.count(label) for label in set(labels)}


class Spied(UniformSampler):
    """Uniform, and remembers the rank that each node got."""

    def __init__(self) -> None:
        self.ranks: dict[int, float] = {}

    def rank(
        self, candidates: Candidates, budgets: Mapping[int, int], *, generator: torch.Generator
    ) -> Tensor:
        ranks = super().rank(candidates, budgets, generator=generator)
        self.ranks.update(zip(candidates.nodes.tolist(), ranks.tolist(), strict=True))
        return ranks


def check_rows_belong_together(memory: EmbeddingMemory) -> None:
    assert memory.embeddings_[:, 0].long().equal(memory.nodes_)
    assert memory.embeddings_[:, 1].long().equal(memory.labels_)
    assert len(memory.ranks_) == len(memory.nodes_) == len(memory.labels_) == len(memory)


def kept(memory: EmbeddingMemory) -> set[int]:
    return set(memory.nodes_.tolist())


batched = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=24)


@pytest.mark.parametrize("budget", [1, 3, 0.3])
@few_each
@given(nodes=batched, seed=st.integers(0, 10_000))
def test_batches_keep_best_ranks(budget, nodes, seed):
    labels = [label for label, _ in nodes]
    candidates, sizes, sampler = candidates_of(labels), sizes_of(labels), Spied()
    memory, draws = EmbeddingMemory(budget=budget, sampler=sampler), generator(seed)
    for batch in range(4):
        rows = [row for row, (_, own) in enumerate(nodes) if own == batch]
        if rows:
            memory.store(candidates.take(torch.tensor(rows)), sizes, generator=draws)
            check_rows_belong_together(memory)
    best = set()
    for label, size in sizes.items():
        own = sorted((sampler.ranks[row], row) for row in range(len(nodes)) if labels[row] == label)
        count = budget if isinstance(budget, int) else max(1, round(budget * size))
        best |= {row for _, row in own[: int(count)]}
    assert kept(memory) == best
    assert len(memory) == len(best)
    assert memory.ranks_.tolist() == [sampler.ranks[node] for node in memory.nodes_.tolist()]


@pytest.mark.parametrize("name", [n for n in samplers.names() if not samplers.resolve(n).mergeable])
def test_a_sampler_that_must_see_a_class_whole_refuses_a_second_batch(name):
    memory = EmbeddingMemory(budget=1, sampler=samplers.make(name))
    memory.store(candidates_of([0, 0, 1]), {0: 2, 1: 1}, generator=generator())
    memory.store(candidates_of([2, 2]), {2: 2}, generator=generator())  # another class may come
    with pytest.raises(ConfigurationError) as caught:
        memory.store(candidates_of([3, 1]), {1: 1, 3: 1}, generator=generator())
    assert f"sampler {name!r} must see a class whole, but class 1 came" in str(caught.value)
    assert sorted(memory.labels_.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("name", samplers.names())
def test_budget_zero_keeps_nothing_and_goes_on(name):
    memory = EmbeddingMemory(budget=0, sampler=samplers.make(name))
    for _ in range(2):
        memory.store(candidates_of([0, 1, 0]), {0: 2, 1: 1}, generator=generator())
        memory.measure(graph_of([], 3), torch.arange(3), torch.arange(3), hops=1)
    assert len(memory) == 0
    assert memory.usage.floats == 0
    assert memory.coverage_ratio == 0.0


def test_usage_counts_floats_of_embeddings_and_bytes_of_everything():
    memory = EmbeddingMemory(budget=3)
    memory.store(candidates_of([0] * 5 + [1]), {0: 5, 1: 1}, generator=generator())
    # four rows: 4 floats of 4 bytes; a label, a node and a rank of 8 bytes; and one counter
    assert memory.usage == MemoryUsage(samples=4 * 4, bytes=4 * (16 + 24) + 8)
    assert memory.usage.bytes == sum(t.nbytes for t in memory.state().values())


def filled(budget: int = 2) -> EmbeddingMemory:
    memory = EmbeddingMemory(budget=budget, sampler=UniformSampler())
    memory.store(candidates_of([0, 0, 0, 1, 1, 1]), {0: 3, 1: 3}, generator=generator(3))
    memory.measure(graph_of(path_pairs(3), 6), torch.arange(6), torch.arange(6), hops=1)
    return memory


def test_a_restored_memory_goes_on_as_the_first_would_have():
    first, second = filled(), EmbeddingMemory(budget=2, sampler=UniformSampler())
    second.restore({name: value.clone() for name, value in first.state().items()})
    assert second.usage == first.usage
    assert second.coverage_ratio == first.coverage_ratio > 0
    for memory in (first, second):
        memory.store(candidates_of([1, 1, 2, 2, 2]), {1: 5, 2: 3}, generator=generator(8))
        memory.measure(graph_of([(0, 1)], 5), torch.arange(5), torch.arange(5), hops=1)
    assert first.state().keys() == second.state().keys()
    for name, value in first.state().items():
        assert value.equal(second.state()[name])


@given(
    pairs=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=10),
    hops=st.integers(0, 2),
    budget=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_the_coverage_of_one_task_is_r_c(pairs, hops, budget, seed):
    candidates = candidates_of([0, 1, 0, 1, 0, 1, 0, 1], pairs, hops=hops)
    memory = EmbeddingMemory(budget=budget)
    memory.store(candidates, {0: 4, 1: 4}, generator=generator(seed))
    memory.measure(candidates.graph, torch.arange(8), torch.arange(8), hops=hops)
    expected = coverage_ratio(candidates.graph, memory.nodes_, hops=hops)
    assert memory.coverage_ratio == pytest.approx(expected)


def test_coverage_adds_up_over_tasks():
    memory = EmbeddingMemory(budget=1)
    assert memory.coverage_ratio == 0.0
    path = [(0, 1), (1, 2), (2, 3)]
    # The middle of a star of four covers all; of the second task's four nodes, one of a path's
    # ends covers two.
    star = candidates_of([0] * 4, [(0, 1), (0, 2), (0, 3)])
    memory.store(star.take(torch.tensor([0])), {0: 4}, generator=generator())
    memory.measure(star.graph, torch.arange(4), torch.arange(4), hops=1)
    assert memory.coverage_ratio == 1.0
    second = replace(candidates_of([1] * 4, path), known_as=torch.arange(4, 8))
    memory.store(second.take(torch.tensor([3])), {1: 4}, generator=generator())
    memory.measure(second.graph, torch.arange(4, 8), torch.arange(4), hops=1)
    assert memory.coverage_ratio == (4 + 2) / (4 + 4)


tasks_of_classes = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), min_size=6, max_size=6),
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=7),
    ),
    min_size=1,
    max_size=5,
)


@given(
    tasks=tasks_of_classes,
    hops=st.integers(0, 2),
    budget=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
def test_coverage_is_that_of_what_is_stored_now(tasks, hops, budget, seed):
    memory, draws = EmbeddingMemory(budget=budget), generator(seed)
    for index, (labels, pairs) in enumerate(tasks):
        ids = torch.arange(6 * index, 6 * index + 6)
        candidates = replace(candidates_of(labels, pairs, hops=hops), known_as=ids)
        memory.store(candidates, sizes_of(labels), generator=draws)
        memory.measure(candidates.graph, ids, torch.arange(6), hops=hops)
        covered = 0
        for earlier, (_, joined) in enumerate(tasks[: index + 1]):
            places = memory.nodes_[memory.nodes_ // 6 == earlier] % 6
            covered += int(covered_nodes(graph_of(joined, 6), places, hops=hops).sum())
        assert memory.coverage_ratio == pytest.approx(covered / (6 * (index + 1)))


def ratio(graph: Graph, nodes: list[int], hops: int) -> float:
    return coverage_ratio(graph, torch.tensor(nodes, dtype=torch.int64), hops=hops)


def test_a_path_by_hand():
    path = graph_of(path_pairs(5))  # and 5 apart
    assert ratio(path, [0], 0) == pytest.approx(1 / 6)
    assert ratio(path, [0], 1) == pytest.approx(2 / 6)
    assert ratio(path, [0, 2], 1) == pytest.approx(4 / 6)  # 1 is covered twice and counts once
    assert ratio(path, [2], 2) == pytest.approx(5 / 6)
    assert ratio(path, [2, 5], 2) == 1.0
    assert ratio(path, [], 2) == 0.0


@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    nodes=st.lists(st.integers(0, 5), max_size=5),
    hops=st.integers(0, 3),
)
def test_the_ratio_is_the_share_of_the_union_of_egos(pairs, nodes, hops):
    graph = graph_of(pairs, undirected=False)
    egos = reach(graph, torch.tensor(nodes, dtype=torch.int64), hops=hops)
    union = {node for ego in egos for node in ego.tolist()}
    assert ratio(graph, nodes, hops) == pytest.approx(len(union) / 6)


@pytest.mark.parametrize(
    ("budget", "sizes", "available", "expected"),
    [
        (3, {0: 50, 1: 4}, {0: 30, 1: 5}, {0: 3, 1: 3}),  # a whole number counts per class
        (0, {0: 50}, {0: 30}, {0: 0}),
        (10, {0: 50, 1: 4}, {0: 30, 1: 2}, {0: 10, 1: 2}),  # no class keeps more than it has
        (0.9, {0: 50}, {0: 30}, {0: 30}),
        # a fraction is of all nodes of the class, also those not for training, and at least one
        (0.04, {0: 100, 1: 60, 2: 10}, {0: 60, 1: 36, 2: 6}, {0: 4, 1: 2, 2: 1}),
        (0.5, {0: 10, 1: 10}, {1: 6}, {1: 5}),  # only classes with training nodes have a budget
        (2, {0: 10}, {}, {}),
    ],
)
def test_budgets_of_classes_by_hand(budget, sizes, available, expected):
    assert class_budgets(budget, sizes, available) == expected


@given(
    fraction=st.floats(0.001, 0.999),
    sizes=st.dictionaries(st.integers(0, 5), st.integers(1, 1000), min_size=1),
)
def test_fractions_are_within_half_a_node(fraction, sizes):
    for label, kept in class_budgets(fraction, sizes, sizes).items():
        assert 1 <= kept <= sizes[label]
        assert kept == 1 or abs(kept - fraction * sizes[label]) <= 0.5


@pytest.mark.parametrize("budget", [-1, 0.0, 1.0, 1.5, -0.1, math.nan, True, "10", None])
def test_anything_else_is_refused(budget):
    with pytest.raises(ConfigurationError) as caught:
        EmbeddingMemory(budget=budget)
    assert str(caught.value).startswith("budget must be an integer of at least 0 (per class) or")
    assert str(caught.value).endswith(f"not {budget!r}")
