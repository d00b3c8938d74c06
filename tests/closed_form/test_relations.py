"""What comes along relations: by hand, in any order of nodes, and with relations that are not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form.codes import RelationCodes, RelationHops, kind_signs, type_codes, widened
from evergraph.core.errors import ConfigurationError
from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.topology.column_blocks import encode_within

NAMES = ("cites", "writes")
WIDTH = 8


def graph_of(
    edges: list[tuple[int, int, int]],
    nodes: int,
    *,
    weights: list[float] | None = None,
    types: list[int] | None = None,
    labels: list[int] | None = None,
) -> Graph:
    given = torch.tensor(edges, dtype=torch.int64).reshape(-1, 3).t()
    drawn = torch.Generator().manual_seed(nodes)
    graph = Graph.from_edges(
        given[:2],
        features=torch.randn(nodes, WIDTH, generator=drawn),
        labels=torch.tensor(labels or [0] * nodes),
        undirected=True,
    )
    kept = None if weights is None else torch.tensor(weights)
    graph = graph.with_relations(
        Relations.of(given[:2], given[2], NAMES, nodes=nodes, weights=kept)
    )
    if types is None:
        return graph
    return graph.with_types(NodeTypes(("paper", "author"), torch.tensor(types).short()))


def dense(graph: Graph, features: Tensor, *, hop: int) -> Tensor:
    """Return B H, one kind and node at a time."""
    names, relations = graph.relations.kind_names(), graph.relations
    signs = kind_signs(names, hop=hop, width=features.shape[1])
    out = torch.zeros_like(features)
    weights = torch.ones(len(relations)) if relations.weights is None else relations.weights
    for row in range(graph.num_nodes):
        for kind in range(len(names)):
            found = (relations.rows() == row) & (relations.kinds == kind)
            if bool(found.any()):
                shares = weights[found] / weights[found].sum()
                out[row] += signs[kind] * (shares @ features[relations.indices[found].long()])
    return out


def test_a_path_by_hand():
    # 0 cites 1 and 2; 1 writes 2
    graph = graph_of([(0, 1, 0), (0, 2, 0), (1, 2, 1)], 3)
    x = graph.features / graph.features.norm(dim=1, keepdim=True)
    types, near, far = RelationHops(width=WIDTH).encode(graph).split(WIDTH, dim=1)
    cites, cited, writes, written = kind_signs(
        ["cites>", "cites<", "writes>", "writes<"], hop=1, width=WIDTH
    )
    assert not bool(types.any())
    torch.testing.assert_close(near[0], cited * (x[1] + x[2]) / 2)
    torch.testing.assert_close(near[1], cites * x[0] + written * x[2])
    torch.testing.assert_close(near[2], cites * x[0] + writes * x[1])
    again = kind_signs(["cites<"], hop=2, width=WIDTH)[0]
    torch.testing.assert_close(far[0], again * (near[1] + near[2]) / 2)


def test_types_are_seen_and_sent_and_weights_weigh_the_mean():
    graph = graph_of([(0, 2, 0), (1, 2, 0)], 3, weights=[1.0, 3.0], types=[0, 1, 1])
    graph = graph.with_features(graph.features * torch.tensor([[1.0], [1.0], [0.0]]))
    codes = type_codes(graph, WIDTH)
    own, near, _ = RelationHops(width=WIDTH).encode(graph).split(WIDTH, dim=1)
    torch.testing.assert_close(own, codes)
    sent = graph.features[:2] / graph.features[:2].norm(dim=1, keepdim=True) + codes[:2]
    sign = kind_signs(["cites>"], hop=1, width=WIDTH)[0]
    torch.testing.assert_close(near[2], sign * (sent[0] + 3 * sent[1]) / 4)


def test_codes_tell_classes_by_relation_and_not_a_nodes_own():
    graph = graph_of([(0, 2, 0), (1, 2, 1)], 3, labels=[0, 1, 0])
    codes = RelationCodes(width=WIDTH).encode(graph)
    table = RelationCodes(width=WIDTH).inputs(graph).features
    along, wrote = kind_signs(["cites>", "writes>"], hop=1, width=WIDTH)
    torch.testing.assert_close(codes[2], along * table[0] + wrote * table[1])
    other = RelationCodes(width=WIDTH).encode(graph.with_labels(torch.tensor([0, 1, 1])))
    torch.testing.assert_close(codes[2], other[2])
    assert not torch.allclose(codes[0], other[0])


edge_lists = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 1)), max_size=14
)


@given(edges=edge_lists, weighed=st.booleans())
def test_as_one_kind_and_node_at_a_time(edges, weighed):
    weights = [0.5 + place for place in range(len(edges))] if weighed else None
    graph = graph_of(edges, 6, weights=weights, types=[0, 1] * 3)
    found = RelationHops(width=WIDTH).encode(graph).split(WIDTH, dim=1)
    sent = widened(graph.features, WIDTH) + type_codes(graph, WIDTH)
    near = dense(graph, sent, hop=1)
    torch.testing.assert_close(found[1], near, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[2], dense(graph, near, hop=2), atol=1e-5, rtol=1e-5)


@settings(max_examples=10)
@given(edges=edge_lists)
def test_a_relation_of_weight_0_or_of_others_is_none(edges):
    weights = [float(kind == 0) for _, _, kind in edges]
    less = [edge for edge in edges if edge[2] == 0]
    found = RelationHops(width=WIDTH).encode(graph_of(less, 6))
    whole = RelationHops(width=WIDTH).encode(graph_of(edges, 6, weights=weights))
    torch.testing.assert_close(whole, found)
    more = graph_of([*less, (6, 7, 1)], 8)
    more = more.with_features(torch.cat([graph_of(less, 6).features, more.features[6:]]))
    torch.testing.assert_close(RelationHops(width=WIDTH).encode(more)[:6], found)


def test_block_by_block_it_is_the_same():
    graph = graph_of([(0, 1, 0), (0, 2, 0), (1, 2, 1)], 3, types=[0, 1, 0])
    topology = RelationHops(width=WIDTH)
    whole = topology.encode(graph)
    blocks = encode_within(topology, graph, resources=Resources(), shared=True)
    torch.testing.assert_close(blocks, whole)
    inputs = topology.inputs(graph)
    part = topology.from_column(3).smooth(inputs.with_features(inputs.features[:, 3:5]))
    torch.testing.assert_close(part[:, 2:4], whole[:, WIDTH + 3 : WIDTH + 5])


def test_a_graph_without_relations_is_told_so():
    graph = graph_of([(0, 1, 0)], 2).with_relations(None)
    with pytest.raises(ConfigurationError, match="this one has neither"):
        RelationHops().encode(graph)
