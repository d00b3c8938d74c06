"""Rows cut into tiles and ranges: threads do not show, and what is streamed is the same product."""

import logging
import sys
from importlib.util import module_from_spec, spec_from_file_location

import numba
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core import errors
from evergraph.core.resources import exactly_threads
from evergraph.graphs import Graph
from evergraph.graphs.kernels import products, row_ranges
from evergraph.graphs.kernels.row_ranges import tiled_product
from evergraph.graphs.propagation import smoother
from evergraph.nn.linear import tiled_linear
from forked import in_a_child


@pytest.fixture(autouse=True, scope="module")
def _small_tiles() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "TILE", 64)
        patch.setattr(row_ranges, "TILE_ROWS", 3)
        yield


sizes = st.integers(1, 40)


@given(n=sizes, k=sizes, m=sizes, added=st.booleans(), seed=st.integers(0, 99))
def test_a_tiled_product_is_the_product_with_any_number_of_threads(n, k, m, added, seed):
    draw = torch.Generator().manual_seed(seed)
    left, right = torch.randn(n, k, generator=draw), torch.randn(k, m, generator=draw)
    add = torch.randn(m, generator=draw) if added else None
    found = []
    for threads in (1, 2, 5):
        with exactly_threads(threads):
            found.append(tiled_product(left, right, add))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    exact = left.double() @ right.double() + (0 if add is None else add.double())
    torch.testing.assert_close(found[0].double(), exact, rtol=1e-5, atol=1e-4)


def test_a_long_sum_is_made_by_one_thread_wherever_it_is_made():
    draw = torch.Generator().manual_seed(0)
    left, right = torch.randn(256, 1548, generator=draw), torch.randn(1548, 767, generator=draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "TILE_ROWS", 128)
        found = []
        for threads in (1, 2):
            with exactly_threads(threads):
                found.append(tiled_product(left, right))
    assert torch.equal(*found)


@given(n=st.integers(10, 40), inputs=sizes, outputs=sizes, bias=st.booleans())
def test_gradients_of_a_tiled_map_are_right(n, inputs, outputs, bias):
    draw = torch.Generator().manual_seed(n)

    def random(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()

    parts = [random(n, inputs), random(outputs, inputs), *([random(outputs)] if bias else [])]
    slopes = random(n, outputs).detach()
    ours = torch.autograd.grad(tiled_linear(*parts), parts, slopes)
    plain = torch.nn.functional.linear(*parts)
    for mine, theirs in zip(ours, torch.autograd.grad(plain, parts, slopes), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_tiled_map_has_gradients_of_gradients():
    parts = [torch.ones(30, 4, dtype=torch.float64), torch.ones(5, 4, dtype=torch.float64)]
    for part in parts:
        part.requires_grad_()
    torch.autograd.gradgradcheck(tiled_linear, parts)


@pytest.mark.parametrize("self_loops", [True, False])
def test_ranges_give_the_whole(self_loops, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(50, (2, 300), generator=generator)
    graph = Graph.from_edges(
        edges, features=torch.rand(50, 7), labels=torch.zeros(50, dtype=torch.long)
    )
    whole = smoother(graph, self_loops=self_loops, kernel="torch")
    monkeypatch.setattr(products, "STREAMED_ENTRIES", 40)
    add, out = torch.rand(50, 7), torch.empty(50, 7)
    products.streamed_product(whole, graph.features, out, products.Affine(add, 0.5, 2.0))
    torch.testing.assert_close(out, 0.5 * (whole.matrix @ graph.features) + 2 * add)
    part = whole.rows(slice(10, 30))
    some = torch.empty(20, 7)
    products.streamed_product(part, graph.features, some, products.Affine())
    torch.testing.assert_close(some, (whole.matrix @ graph.features)[10:30])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_features_on_a_gpu_and_the_adjacency_in_host_memory():
    edges = torch.randint(50, (2, 300), generator=torch.Generator().manual_seed(0))
    graph = Graph.from_edges(
        edges, features=torch.rand(50, 7), labels=torch.zeros(50, dtype=torch.long)
    )
    operator = smoother(graph)
    found = operator.product(graph.features.cuda())
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), operator.product(graph.features))


def test_who_waits_for_a_compiler_is_told_once_and_not_when_code_is_ready(tmp_path, monkeypatch):
    config = numba.config
    file = tmp_path / "loops.py"
    file.write_text("def one(n):\n    return n + 1\n\n\ndef two(n):\n    return n + 2\n")
    # A process of its own with an empty cache, in which nobody has been told.
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))

    def work():
        spec = spec_from_file_location("evergraph.loops", file)
        loops = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(loops)
        logging.getLogger("evergraph").addHandler(logging.StreamHandler())
        for told in (row_ranges._announce_compiling, errors.say_once):
            told.cache_clear()
        assert [row_ranges.compiled(loop)(3) for loop in (loops.one, loops.two)] == [4, 5]

    said = []
    for _ in range(2):
        ended = in_a_child(work)
        assert ended.code == 0, ended.err
        said.append(ended.err.count("kernels: compiling for this machine, once"))
    assert said == [1, 0]


@pytest.mark.parametrize("added", [False, True])
def test_a_product_some_columns_at_a_time_is_the_same(added):
    draw = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(
        torch.randint(30, (2, 200), generator=draw),
        features=torch.randn(30, 11, generator=draw),
        labels=torch.zeros(30, dtype=torch.long),
    )
    matrix = smoother(graph, kernel="torch").matrix
    add = torch.randn(30, 11, generator=draw) if added else None
    found = []
    for often in (1 << 30, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(products, "UNCACHED_VALUES", 0)
            patch.setattr(products, "READS_PER_ROW", often)
            patch.setattr(products, "CACHED_COLUMNS", 4)
            found.append(torch.full((30, 11), torch.nan))
            products.into(matrix, graph.features, found[-1], products.Affine(add, 0.5, 2.0))
    torch.testing.assert_close(*found)
