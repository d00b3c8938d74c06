"""Edges that are listed several times: by hand, and against a loop over the rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DataError, UnknownNameError
from evergraph.graphs import Graph
from evergraph.graphs.validation import combined

RULES = {
    "sum": sum,
    "mean": lambda weights: sum(weights) / max(sum(weight > 0 for weight in weights), 1),
    "count": lambda weights: sum(weight > 0 for weight in weights),
}
ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 0.5, 1, 8]), st.booleans())
)


@given(rows=ROWS, rule=st.sampled_from([*RULES]), both_ways=st.booleans(), related=st.booleans())
def test_each_edge_is_combined_as_a_loop_over_the_rows_would(rows, rule, both_ways, related):
    expected: dict = {}
    for row, (source, target, weight, kind) in enumerate(rows):
        pair = (min(source, target), max(source, target)) if both_ways else (source, target)
        edge = (source, target, kind) if related else pair
        expected.setdefault(edge, (row, []))[1].append(weight)
    ends = torch.tensor([row[:2] for row in rows], dtype=torch.int64).reshape(-1, 2).t()
    weights = torch.tensor([row[2] for row in rows], dtype=torch.float32)
    kinds = torch.tensor([int(row[3]) for row in rows]) if related else None
    found = combined(ends, weights, kinds, repeated=rule, both_ways=both_ways)
    assert found.rows.tolist() == [row for row, _ in expected.values()]
    assert found.weights.tolist() == [RULES[rule](given) for _, given in expected.values()]
    edges = [
        len(given) for (source, target, *_), (_, given) in expected.items() if source != target
    ]
    assert found.repeats == sum(edges) - len(edges)


def test_rows_without_weights_count_one_each():
    ends = torch.tensor([[0, 1, 0, 2, 2], [1, 0, 1, 2, 2]])  # 0 - 1 three times, and self-loops
    found = combined(ends, None, repeated="count", both_ways=True)
    assert (found.rows.tolist(), found.weights.tolist()) == ([0, 3], [3, 2])
    # Both directions of an undirected edge are no repeat as long as nothing is lost.
    for rule, repeats in (("last", 1), ("mean", 1), ("sum", 2)):
        found = combined(ends, None, repeated=rule, both_ways=True)
        assert (found.repeats, found.weights is None) == (repeats, rule != "sum")


def test_what_is_refused():
    ends = torch.tensor([[2, 0, 2, 0], [2, 1, 2, 1]])
    with pytest.raises(DataError, match="row 4 lists the edge of row 2 again: expected each edge"):
        combined(ends, None, repeated="refuse")
    with pytest.raises(UnknownNameError, match="unknown repeated 'add'"):
        combined(ends, None, repeated="add")
    with pytest.raises(DataError, match=r"edge 0 has weight 1\.99"):  # more than a weight may be
        Graph.from_edges(
            ends[:, 1::2],
            features=torch.eye(3),
            labels=torch.zeros(3, dtype=torch.int64),
            weights=torch.tensor([1e18, 1e18], dtype=torch.float64),
            repeated="sum",
        )
