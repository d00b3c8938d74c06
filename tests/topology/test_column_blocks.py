"""Embeddings in blocks of columns: the same, whoever computes them."""

import logging
from typing import Any

import pytest
import torch

from evergraph.core.errors import ResourceError
from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.graphs.csr import as_csr
from evergraph.topology import SGC, MixHop, Reservoir, TopologyEncoder, column_blocks
from evergraph.topology.column_blocks import columns_of, encode_columns, encode_within
from graph_in_folder import written
from several import Several


def test_sparse_features_and_parts_go_where_they_belong(small_graph):
    graph = small_graph.with_features(as_csr(small_graph.features.clamp_min(0.5) - 0.5))
    topology = MixHop(hops=2, kept_hops=[0, 2])
    found = encode_within(topology, graph, resources=Resources(engine=Several()), shared=True)
    torch.testing.assert_close(found, topology.encode(graph), rtol=0, atol=1e-6)


def test_each_worker_has_a_block(small_graph, monkeypatch):
    seen = []

    def watched(columns, **shared):
        seen.append((columns.start, columns.stop))
        return encode_columns(columns, **shared)

    monkeypatch.setattr(column_blocks, "encode_columns", watched)
    encode_within(SGC(), small_graph, resources=Resources(engine=Several()), shared=True)
    assert seen == [(0, 5), (5, 10), (10, 16)]


def chosen(
    topology: TopologyEncoder, graph: Graph, resources: Resources, caplog: pytest.LogCaptureFixture
) -> str:
    """Return what the log says of how embeddings are computed; nothing if by one process."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="evergraph.topology"):
        found = encode_within(topology, graph, resources=resources)
    torch.testing.assert_close(found, topology.encode(graph), rtol=0, atol=1e-6)
    return " ".join(record.getMessage() for record in caplog.records)


def test_what_workers_share_is_chosen_by_size(small_graph, monkeypatch, caplog):
    several = Resources(engine=Several())
    assert chosen(SGC(), small_graph, several, caplog) == ""  # too little work to share
    monkeypatch.setattr(column_blocks, "SHARED_FROM", 0)
    assert "encoding 16 columns in 3 blocks" in chosen(SGC(), small_graph, several, caplog)
    assert chosen(Reservoir(), small_graph, several, caplog) == ""  # its columns mix
    assert chosen(SGC(), small_graph, Resources(), caplog) == ""  # one worker


def test_machines_do_not_share_memory(small_graph, monkeypatch, caplog):
    monkeypatch.setattr(column_blocks, "SHARED_FROM", 0)
    monkeypatch.setattr(column_blocks, "RESERVE", 0)
    monkeypatch.setattr(column_blocks, "NODE_RESERVE", 0)
    room = small_graph.indices.nbytes  # of which 3 columns take 4 bytes x 360 nodes x 3 arrays each
    monkeypatch.setattr(Resources, "left", property(lambda self: room))
    monkeypatch.setattr(Resources, "fits", lambda *_: False)
    together, apart = Asked(), Asked()
    apart.machines = 3
    for engine in (together, apart):
        assert "16 columns in 6 blocks" in chosen(
            SGC(), small_graph, Resources(engine=engine), caplog
        )
    assert (together.asked, apart.asked) == (0, 1)  # a third of the memory holds no adjacency


class Asked(Several):
    """Counts how often it is given work."""

    asked = 0

    def map(self, *given: Any, **more: Any) -> Any:
        self.asked += 1
        return super().map(*given, **more)


def test_a_limit_below_one_column_is_one_sentence(small_graph):
    with pytest.raises(ResourceError, match="encoding a single column of the features takes"):
        encode_within(SGC(), small_graph, resources=Resources(memory_limit=1, engine=Several()))


def test_columns_of_mapped_features(small_graph, tmp_path):
    graph = written(small_graph, tmp_path / "graph")
    assert torch.equal(columns_of(graph.features, 2, 5), small_graph.features[:, 2:5])
