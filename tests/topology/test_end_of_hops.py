"""Where hops end: one vector for all nodes that are connected."""

from itertools import pairwise

import torch

from evergraph.closed_form.views import View
from evergraph.topology import EmbeddingCache
from evergraph.topology.mixhop import EndOfHops, ViewHops
from graphs_to_draw import graph_of, path_pairs


def random_rows(count, width):
    return torch.rand(count, width, generator=torch.Generator().manual_seed(0))


def test_it_is_the_limit_of_hops():
    """A path with a branch, a pair, and a node alone."""
    pairs = [(0, 1), (1, 2), (1, 3), (4, 5)]
    graph = graph_of(pairs, features=random_rows(7, 5))
    ends, far = EndOfHops(), ViewHops(kept_hops=(200,))
    found = ends.scaled(ends.encode(graph))
    torch.testing.assert_close(found, far.scaled(far.encode(graph)), atol=1e-4, rtol=0)
    assert found[0].equal(found[3])
    assert not found[0].equal(found[4])


def test_nodes_weigh_by_the_roots_of_their_degrees():
    """On a path of three, the row sums of A + I are 2, 3 and 2."""
    expected = torch.tensor([2.0, 3.0, 2.0]).sqrt().expand(3, 3)
    found = EndOfHops().encode(graph_of(path_pairs(3), features=torch.eye(3)))
    torch.testing.assert_close(found, expected)


def test_directions_do_not_separate():
    graph = graph_of([(0, 1), (2, 1)], features=torch.eye(3), undirected=False)
    found = EndOfHops().encode(graph)
    assert found[0].equal(found[2])


def test_rows_can_be_asked_for_alone():
    graph = graph_of(path_pairs(3), features=random_rows(4, 300))
    whole = EmbeddingCache(EndOfHops(widest=128))(graph)
    assert whole.shape == (4, 128)
    some = EmbeddingCache(EndOfHops(widest=128))(graph, torch.tensor([3, 0]))
    torch.testing.assert_close(some, whole[[3, 0]])


def test_a_view_of_it_is_written_c():
    view = View.parse("0|c|s")
    assert str(view) == "0|c|s"
    assert view.is_far


def test_a_long_component_is_one_however_its_rows_are_read():
    """Rows are read in many ranges: labels that were joined in one are joined again in the next."""
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0)).tolist()
    pairs = [*pairwise(order[:300]), *pairwise(order[300:])]
    found = EndOfHops().encode(graph_of(pairs, features=random_rows(400, 3)))
    for part in (order[:300], order[300:]):
        assert found[part].unique(dim=0).shape[0] == 1
    assert not found[order[0]].equal(found[order[-1]])
