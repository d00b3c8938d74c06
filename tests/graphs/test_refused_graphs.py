"""What is no graph is refused with the reason."""

import re

import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.graphs import Graph
from evergraph.graphs.validation import check_features
from graphs_to_draw import edge_index
from pyg import pyg_data

EDGE, EYE, LABELS = edge_index([(0, 1)]), torch.eye(2), torch.tensor([0, 1])

NAN = torch.tensor([[1.0, 0.0], [0.0, float("nan")]])

REFUSED = {
    "edge 1 joins 1 and 2, but nodes are numbered 0 to 1": (
        edge_index([(0, 1), (1, 2), (5, 5)]), EYE, LABELS, None,
    ),
    "edge 0 joins 2 and 0, but nodes are numbered 0 to 1": (
        edge_index([(2, 0)]), EYE, LABELS, None,
    ),
    "edge 0 joins -1 and 0, but nodes are numbered 0 to 1": (
        edge_index([(-1, 0)]), EYE, LABELS, None,
    ),
    "edge_index has shape (1, 2): expected [2, edges]": (torch.zeros(1, 2), EYE, LABELS, None),
    "edge_index has shape (4,): expected [2, edges]": (torch.zeros(4), EYE, LABELS, None),
    "edge_index holds torch.float32: expected integers": (EDGE.float(), EYE, LABELS, None),
    "features have shape (3, 3): expected [2, dims]": (EDGE, torch.eye(3), LABELS, None),
    "features have shape (2,): expected [2, dims]": (EDGE, torch.ones(2), LABELS, None),
    "features hold NaN or infinity, first in row 1": (EDGE, NAN, LABELS, None),
    "features hold NaN or infinity, first in row 0": (EDGE, torch.inf * EYE[:, :1], LABELS, None),
    "features hold NaN or infinity, first in stored value 1": (
        EDGE, NAN.to_sparse_csr(), LABELS, None,
    ),
    "labels have shape (2, 1), but the graph has 2 nodes": (EDGE, EYE, LABELS[:, None], None),
    "node 1 has label -2": (EDGE, EYE, torch.tensor([0, -2]), None),
    "labels hold torch.float32": (EDGE, EYE, LABELS.float(), None),
    "features hold NaN or infinity": (EDGE, EYE.double() * 1e300, LABELS, None),  # in float32
    "time has shape (3,), but the graph has 2 nodes": (EDGE, EYE, LABELS, torch.arange(3)),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_a_graph_is_refused_with_the_reason(message):
    edges, features, labels, time = REFUSED[message]
    with pytest.raises(DataError, match=re.escape(message)):
        Graph.from_edges(edges, features=features, labels=labels, time=time)


def test_a_record_whose_features_have_other_rows_is_refused():
    with pytest.raises(DataError, match="features have 3 rows, but the graph has 6 nodes"):
        Graph(torch.zeros(7).int(), torch.zeros(0).int(), torch.eye(3), torch.zeros(6).long())


def test_finite_features_whose_sum_is_not_are_taken():
    check_features(torch.full((2, 1), 1e308, dtype=torch.float64), 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"time": torch.tensor([1.0, float("nan")])}, "time holds torch.float32: expected integ"),
        ({"time": torch.tensor([1.5, 2.0])}, "time holds torch.float32: expected integers"),
        ({"time": torch.tensor([True, False])}, "time holds torch.bool: expected integers"),
        ({"features": torch.ones(2, 1) * 1j}, "features hold torch.complex64: expected real"),
        (
            {"features": (torch.ones(2, 1) * 1j).to_sparse()},
            "features hold torch.complex64: expected real numbers",
        ),
        ({"edge_index": torch.ones(2, 3).bool()}, "edge_index holds torch.bool: expected integers"),
        ({"edge_index": torch.ones(2, 3) * 1j}, "edge_index holds torch.complex64: expected int"),
    ],
)
def test_kinds_of_numbers_that_are_refused(change, said):
    parts = {
        "edge_index": edge_index([(0, 1)]),
        "features": torch.ones(2, 1),
        "labels": torch.tensor([0, 1]),
    } | change
    with pytest.raises(DataError, match=said):
        Graph.from_edges(parts.pop("edge_index"), **parts)
    names = {"features": "x", "labels": "y"}
    held = {"edge_index": edge_index([(0, 1)])} | {names.get(k, k): v for k, v in parts.items()}
    with pytest.raises(DataError, match=said):
        Graph.from_data(pyg_data(**held | {names.get(k, k): v for k, v in change.items()}))
