"""What neighbours are labelled: by hand, and that nobody sees what it is labelled itself."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassCodes
from evergraph.closed_form.codes import class_codes, kind_signs, own_share, widened
from evergraph.closed_form.view_map import RandomMap
from evergraph.closed_form.views import View
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.graphs import UNLABELLED, Graph
from evergraph.topology import EmbeddingCache
from evergraph.topology.column_blocks import encode_within
from graphs_to_draw import Pairs, edge_index, graph_of, path_pairs, random_graph
from several import Several
from six_nodes import NODES
from six_nodes import pairs as any_pairs

WIDTH = 8
CODES = class_codes(range(4), width=WIDTH)
powers_of_ten = st.none() | st.lists(st.integers(-8, 8), min_size=18, max_size=18)
labels_of_six = st.lists(st.integers(UNLABELLED, 3), min_size=NODES, max_size=NODES)


def labelled(pairs: Pairs, labels: Sequence[int], *, undirected: bool = True) -> Graph:
    return graph_of(pairs, len(labels), undirected=undirected).showing(torch.tensor(labels))


def weighted(
    pairs: Pairs, labels: Sequence[int], powers: Sequence[int] | None, undirected: bool
) -> Graph:
    if powers is None:
        return labelled(pairs, labels, undirected=undirected)
    return Graph.from_edges(
        edge_index(pairs),
        features=torch.zeros(len(labels), 1),
        labels=torch.tensor(labels),
        weights=10.0 ** torch.tensor(powers[: len(pairs)]),
        undirected=undirected,
    )


def hops_of(graph: Graph) -> tuple[Tensor, Tensor]:
    near, far = ClassCodes(width=WIDTH).encode(graph).split(WIDTH, dim=1)
    return near, far


def scaled(graph: Graph) -> Tensor:
    """Return codes as views see them."""
    return EmbeddingCache(ClassCodes(width=WIDTH)).encode(graph)


def by_numpy(graph: Graph) -> Tensor:
    """Compute it densely, in float64: two hops without the diagonal of N²."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    weights = 1 if graph.weights is None else graph.weights.numpy()
    matrix[graph.edge_rows().numpy(), graph.indices.numpy()] = weights
    degrees = matrix.sum(1)  # who gathers from nobody weighs nothing
    scales = np.divide(1, np.sqrt(degrees), out=np.zeros(len(degrees)), where=degrees > 0)
    matrix = scales[:, None] * matrix * scales
    table = class_codes(range(graph.num_classes), width=WIDTH).double().numpy()
    codes = np.zeros((graph.num_nodes, WIDTH))
    for node, label in enumerate(graph.labels.tolist()):
        if label >= 0:
            codes[node] = table[label]
    twice = matrix @ matrix
    np.fill_diagonal(twice, 0.0)
    return torch.from_numpy(np.concatenate([matrix @ codes, twice @ codes], axis=1)).float()


# ------------------------------------------------------------------ by hand


def test_a_path_by_hand():
    """0 - 1 - 2 - 3 with the labels 0, 1, none, 3; degrees are 1, 2, 2, 1."""
    near, far = hops_of(labelled(path_pairs(4), [0, 1, UNLABELLED, 3]))
    a, b, c = CODES[0], CODES[1], CODES[3]
    side = 2**-0.5  # between an end and the middle; 1/2 between the middle two
    torch.testing.assert_close(near[0], side * b)
    torch.testing.assert_close(near[1], side * a)  # 2 shows nothing
    torch.testing.assert_close(near[2], b / 2 + side * c)
    torch.testing.assert_close(near[3], torch.zeros(WIDTH))
    assert far[0].abs().max() == 0  # 1 leads back, and to 2, which shows nothing
    torch.testing.assert_close(far[1], side / 2 * c)
    torch.testing.assert_close(far[2], side / 2 * a)
    torch.testing.assert_close(far[3], side / 2 * b)


def test_edges_of_one_way_by_hand():
    """0 gathers from 2, 1 from 0 and 2, 2 from 1: degrees 1, 2 and 1."""
    graph = labelled([(2, 0), (0, 1), (1, 2), (2, 1)], [0, 1, 2], undirected=False)
    near, far = hops_of(graph)
    side = 2**-0.5
    assert own_share(graph).tolist() == pytest.approx([0.0, 0.5, 0.5])  # 1 and 2, there and back
    torch.testing.assert_close(near[0], CODES[2])
    torch.testing.assert_close(near[1], side * (CODES[0] + CODES[2]))
    torch.testing.assert_close(near[2], side * CODES[1])
    torch.testing.assert_close(far[0], side * CODES[1])  # from 2, which gathers from 1
    torch.testing.assert_close(far[1], side * CODES[2])  # from 0, which gathers from 2
    torch.testing.assert_close(far[2], CODES[0] / 2)


# ------------------------------------------------------------------ for any graph


@given(
    pairs=any_pairs,
    labels=labels_of_six,
    undirected=st.booleans(),
    powers=powers_of_ten,
    node=st.integers(0, NODES - 1),
    other=st.integers(UNLABELLED, 3),
)
def test_weights_of_any_size_show_nobody_its_own_label(
    pairs, labels, undirected, powers, node, other
):
    """Each hop beside its largest value, however small that is."""
    changed = [other if place == node else label for place, label in enumerate(labels)]
    before, after = (weighted(pairs, each, powers, undirected) for each in (labels, changed))
    for graph in (before, after):
        for found, expected in zip(hops_of(graph), by_numpy(graph).split(WIDTH, 1), strict=True):
            assert bool(((found - expected).abs().amax(1) <= 1e-5 * expected.abs().amax(1)).all())
    torch.testing.assert_close(scaled(after)[node], scaled(before)[node], rtol=0, atol=1e-5)


def test_codes_depend_on_names_alone_and_are_nearly_orthogonal():
    """Neither on the order nor on the number of classes, nor on which others are shown."""
    many = class_codes([7, 3, 11, 0], width=5)
    assert many[1].equal(class_codes([3], width=5)[0])
    torch.testing.assert_close(many.norm(dim=1), torch.ones(4))
    assert not class_codes([3], width=5, seed=1).equal(many[1:2])
    far = labelled(path_pairs(3), [1, UNLABELLED, 900])
    near, _ = hops_of(far)
    torch.testing.assert_close(near[1], 2**-0.5 * (CODES[1] + class_codes([900], width=WIDTH)[0]))
    table = class_codes(range(200), width=64)
    products = (table @ table.t()).fill_diagonal_(0.0)
    assert float(products.std()) == pytest.approx(1 / 8, rel=0.05)


def test_what_is_drawn_is_fixed():
    """A folder holds what came of these numbers; who opens it years later draws them again."""
    assert class_codes(["x"], width=3)[0].tolist() == pytest.approx([0.1532, -0.9522, 0.2643], 1e-3)
    assert widened(torch.eye(1, 3), 2)[0].tolist() == pytest.approx([-0.9220, 0.3871], 1e-3)
    assert kind_signs(["cites<"], hop=2, width=8)[0].tolist() == [1, -1, 1, -1, -1, -1, 1, -1]
    (directions,) = RandomMap.drawn([View((0,))], {0: 1}, width=2, seed=0).matrices.values()
    assert directions[0].tolist() == pytest.approx([1.5410, -0.2934], 1e-3)


# ------------------------------------------------------------------ in parts


@pytest.mark.parametrize("undirected", [True, False])
def test_parts_give_the_same_as_the_whole(undirected):
    graph = random_graph(4, nodes=50, edges=80, classes=4, undirected=undirected)
    graph = graph.showing(graph.labels.masked_fill(torch.arange(50) % 3 == 0, UNLABELLED))
    topology = ClassCodes(width=WIDTH)
    found = encode_within(topology, graph, resources=Resources(engine=Several()), shared=True)
    torch.testing.assert_close(found, topology.encode(graph), rtol=0, atol=1e-6)


def test_a_width_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="width must be an integer of at least 1, not 0"):
        ClassCodes(width=0)
