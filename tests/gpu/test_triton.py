"""Products by the Triton kernel: by hand, against the CPU, in half numbers, the same in parts."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs import Graph, Smoother, smoother
from evergraph.graphs.kernels import products, scaled_rows
from evergraph.graphs.kernels.scaled_rows import held_rows
from graphs_to_draw import graph_of, path_pairs

pytest.importorskip("triton")
WIDTHS = (1, 3, 31, 32, 33, 100, 128, 129, 300)


def random_graph(nodes: int = 90) -> Graph:
    """Directed, with a hub of more entries than are unrolled and nodes without neighbours."""
    generator = torch.Generator().manual_seed(5)
    some = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    hub = torch.stack([torch.arange(nodes), torch.zeros(nodes, dtype=torch.int64)])
    pairs = torch.cat([some[:, some[1] % 3 != 1], hub], 1)
    labels = torch.zeros(nodes, dtype=torch.int64)
    return Graph.from_edges(pairs, features=torch.eye(nodes), labels=labels)


def random_features(seed: int, width: int, nodes: int = 90) -> Tensor:
    return torch.randn(nodes, width, generator=torch.Generator().manual_seed(seed))


def on_the_device(operator: Smoother) -> Smoother:
    """The same adjacency there: scalings that a device computes may differ in their last bit."""
    weights = None if operator.weights is None else operator.weights.cuda()
    return replace(
        operator,
        indptr=operator.indptr.cuda(),
        indices=operator.indices.cuda(),
        left=operator.left.cuda(),
        right=operator.right.cuda(),
        weights=weights,
        kernel="triton",
    )


def test_a_path_by_hand():
    #  0 - 1 - 2   and 3 apart: means over a node and its neighbours
    path = graph_of(path_pairs(3), 4).to("cuda")
    features = torch.tensor([[6.0, 60.0], [12.0, 120.0], [18.0, 180.0], [5.0, 50.0]]).cuda()
    found = smoother(path, scheme="row", kernel="triton").product(features)
    assert found[:, 0].cpu().allclose(torch.tensor([9.0, 12.0, 15.0, 5.0]))
    alone = smoother(path, scheme="none", self_loops=False, kernel="triton").product(features)
    assert alone[:, 1].tolist() == [120.0, 240.0, 120.0, 0.0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_equals_the_cpu(width, self_loops, weighted):
    graph = random_graph()
    if weighted:
        drawn = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(1))
        graph = replace(graph, weights=drawn + 0.1)
    features, add = random_features(1, width), random_features(2, width)
    given = {"scale": 0.7, "add_scale": 0.3}
    expected = smoother(graph, self_loops=self_loops).product(features, add=add, **given)
    operator = smoother(graph.to("cuda"), self_loops=self_loops, kernel="triton")
    found = operator.product(features.cuda(), add=add.cuda(), **given)
    torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-5)
    assert "matrix" not in vars(operator)  # never written out


@pytest.mark.parametrize("width", [5, 100, 300])
def test_blocks_of_columns_and_rows_give_the_same_bits(width):
    operator = smoother(random_graph().to("cuda"), kernel="triton")
    features = random_features(3, width).cuda()
    whole = operator.product(features)
    out = torch.full_like(whole, torch.nan)
    for columns in (slice(0, width // 3), slice(width // 3, width)):
        for rows in (slice(0, 41), slice(41, 90)):
            operator.rows(rows).product(features[:, columns], out=out[rows, columns])
    assert out.equal(whole)


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_half_numbers_are_summed_in_whole_ones(dtype, digits):
    graph = random_graph()
    features = random_features(4, 100)
    expected = smoother(graph, scheme="none").product(features)
    operator = smoother(graph.to("cuda"), scheme="none", kernel="triton")
    found = operator.product(features.cuda().to(dtype))
    assert found.dtype == dtype
    apart = (found.float().cpu() - expected).norm(dim=1) / expected.norm(dim=1)
    assert apart.max() < digits
    # 4,096 ones and a half: added up in float16, the sum would end at 2,048
    star = Graph.from_edges(
        torch.stack([torch.arange(1, 4097), torch.zeros(4096, dtype=torch.int64)]),
        features=torch.ones(4097, 1),
        labels=torch.zeros(4097, dtype=torch.int64),
    ).to("cuda")
    ones = torch.ones(4097, 1, dtype=dtype, device="cuda")
    assert smoother(star, scheme="none", kernel="triton").product(ones)[0] == 4096


def test_row_pointers_of_64_bits():
    graph = random_graph().to("cuda")
    operator = smoother(graph, kernel="triton")
    wide = replace(operator, indptr=operator.indptr.long())
    features = random_features(6, 7).cuda()
    assert wide.product(features).equal(operator.product(features))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [1, 20, 100, 300])
@pytest.mark.parametrize(
    ("held", "digits"), [("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 2e-2)]
)
def test_rows_are_held_as_asked(held, digits, width, weighted):
    graph = random_graph()
    if weighted:
        graph = replace(graph, weights=torch.rand(graph.num_edges) + 0.1)
    features, add = random_features(7, width), random_features(8, width)
    whole = smoother(graph).product(features, add=add, scale=0.7, add_scale=0.3)
    operator = on_the_device(smoother(graph, held=held))
    found = operator.product(features.cuda(), add=add.cuda(), scale=0.7, add_scale=0.3)
    assert found.dtype == torch.float32
    apart = (found.cpu() - whole).norm() / whole.norm()
    assert apart < digits
    # the same rows are held on a CPU: only the order of sums may differ
    here = smoother(graph, held=held).product(features, add=add, scale=0.7, add_scale=0.3)
    torch.testing.assert_close(found.cpu(), here, atol=1e-5, rtol=1e-5)
    out = torch.full_like(found, torch.nan)
    for rows in (slice(0, 41), slice(41, 90)):
        operator.rows(rows).product(
            features.cuda(), add=add.cuda()[rows], scale=0.7, add_scale=0.3, out=out[rows]
        )
    assert out.equal(found)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_scaled_to_the_bits_of_torch(width, kind):
    features = random_features(11, width + 5).cuda()[:, :width]  # rows that lie apart
    right = torch.rand(len(features)).cuda()
    held = held_rows(features, right, kind)
    assert held.dtype == kind
    assert held.equal((features * right[:, None]).to(kind))


def test_what_float16_cannot_hold_is_refused():
    operator = smoother(random_graph().to("cuda"), scheme="none", kernel="triton", held="float16")
    with pytest.raises(DataError, match="at most 65,504 in size"):
        operator.product(torch.full((90, 3), 1e5).cuda())
    wide = smoother(random_graph().to("cuda"), scheme="none", kernel="triton", held="bfloat16")
    assert bool(wide.product(torch.full((90, 3), 1e5).cuda()).isfinite().all())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("held", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("long", [False, True])
def test_a_streamed_adjacency_gives_the_bits_of_one_that_fits(
    held, self_loops, weighted, long, monkeypatch
):
    monkeypatch.setattr(scaled_rows, "TRITON_PAYS_FROM", 0)
    monkeypatch.setattr(products, "STREAMED_ENTRIES", 37)
    graph = random_graph()
    if weighted:
        graph = replace(graph, weights=torch.rand(graph.num_edges) + 0.1)
    features, add = random_features(9, 100).cuda(), random_features(10, 100).cuda()
    host = smoother(graph, self_loops=self_loops, held=held)
    expected = on_the_device(host).product(features, add=add, scale=0.7, add_scale=0.3)
    if long:
        host = replace(host, indptr=host.indptr.long())
    found = host.product(features, add=add, scale=0.7, add_scale=0.3)
    assert found.is_cuda
    assert found.equal(expected)
    part = host.rows(slice(20, 60)).product(features, add=add[20:60], scale=0.7, add_scale=0.3)
    assert part.equal(expected[20:60])


@pytest.mark.parametrize("held", ["float16", "bfloat16"])
def test_without_triton_half_rows_are_streamed_by_torch(held):
    graph, features = random_graph(), random_features(11, 33)
    expected = smoother(graph, held=held).product(features)
    host = smoother(graph, held=held)  # too small for Triton
    torch.testing.assert_close(host.product(features.cuda()).cpu(), expected, atol=1e-5, rtol=1e-5)
    there = smoother(graph.to("cuda"), kernel="torch", held=held).product(features.cuda())
    torch.testing.assert_close(there.cpu(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_features_come_back_as_such(kernel, dtype):
    features = random_features(12, 20).cuda().to(dtype)
    found = smoother(random_graph().to("cuda"), kernel=kernel).product(features)
    assert found.dtype == dtype
    whole = smoother(random_graph()).product(features.float().cpu())
    assert (found.float().cpu() - whole).norm() / whole.norm() < 2e-2
