"""Plans: every formula on sizes that can be multiplied by hand, every choice that of the code."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError, DataError, UnknownNameError
from evergraph.core.resources import Resources
from evergraph.datasets import load
from evergraph.datasets.generated.twins import ProductsTwin
from evergraph.experiments.planning.constants import (
    Constants,
    GatherCost,
    read_constants,
    write_constants,
)
from evergraph.experiments.planning.encoding import (
    DoesNotFit,
    Place,
    embed_here,
    hop_seconds,
)
from evergraph.experiments.planning.graph_facts import GraphFacts, facts_by_hand, facts_of, of_graph
from evergraph.experiments.planning.holding import Holding
from evergraph.experiments.planning.learning import Size, Smoothing, learning_of
from evergraph.experiments.planning.machine import Machines, parse_rate
from evergraph.experiments.planning.plan import make_plan
from evergraph.experiments.planning.streaming import Stream
from evergraph.experiments.planning.tasks import task_cuts
from evergraph.experiments.planning.ways import embed_by_columns, embed_by_nodes, embed_by_rows
from evergraph.graphs.graph_folder import GraphFolderWriter
from evergraph.topology import SGC
from evergraph.topology.column_blocks import _column_blocks, reserve_of

ROUND = Constants(
    machine="a machine of round numbers",
    cores=2,
    gather=(GatherCost(1e3, 10.0, 1.0), GatherCost(1e9, 40.0, 1.0)),
    gather_speedup=2.0,
    product_speedup=2.0,
    cut_speedup=1.0,
    cut_ns=50.0,
    row_byte_ns=1.0,
    value_ns=1.0,
    counting=((1.0, 1.0),),
    answering=((1.0, 2.0),),
    solving=1.0,
    step_s=0.001,
    exam_s=0.01,
    process_bytes=1e8,
    start_s=3.0,
    cached_gbs=1.0,
    written_gbs=0.1,
    read_gbs=0.1,
    ray_start_s=5.0,
    ray_piece_s=0.0,
    ray_put_gbs=1.0,
)
ONE = Machines(1, 1, 10**12, 1e9)
SMOOTHED = Smoothing(SGC(hops=2), 100)
# 1M nodes and 9M entries: 10M with self-loops, 400 MB of features.
MILLION = Size(1_000_000, 9_000_000)


def holding(memory: float = 1e12, limit: float | None = None) -> Holding:
    return Holding(base=ROUND.process_bytes, memory=memory, limit=limit)


def seconds(steps, name: str) -> float:
    return sum(step.seconds for step in steps if step.name == name)


def test_an_entry_costs_more_where_caches_are_left_behind() -> None:
    assert ROUND.gather_ns(5, 1e3) == 15.0
    assert ROUND.gather_ns(5, 1e6) == pytest.approx(30.0)  # half way between 10 and 40, and 5
    assert ROUND.gather_ns(5, 1e12) == 45.0


def test_hops_gather_every_entry_and_self_loop() -> None:
    flat = replace(ROUND, gather=(GatherCost(1, 20.0, 0.5),))
    # 2 hops x 10M entries x (20 + 0.5 x 100) ns
    assert hop_seconds(MILLION, SMOOTHED, 100, flat, 1) == pytest.approx(1.4)
    assert hop_seconds(MILLION, SMOOTHED, 100, flat, 2) == pytest.approx(0.7)
    assert hop_seconds(MILLION, SMOOTHED, 100, flat, 8) == pytest.approx(0.175)


def test_an_embedding_that_fits_holds_two_arrays_beside_the_features() -> None:
    held = holding()
    embed_here("all", MILLION, SMOOTHED, Place(ONE, ROUND, held))
    assert held.peak == 1e8 + 2 * 4e8
    assert held.held == 1e8 + 4e8
    assert held.on_disk == 0


def test_an_embedding_that_does_not_fit_goes_to_disk_in_blocks_of_columns() -> None:
    held = holding(limit=1e9)
    steps = embed_here("all", replace(MILLION, mapped=True), SMOOTHED, Place(ONE, ROUND, held))
    # 900 MB are left, 69.6 MB of them in reserve: 69 columns of 3 x 4 MB, so two blocks of 50.
    two = 2 * hop_seconds(MILLION, SMOOTHED, 50, ROUND, 1)
    assert seconds(steps, "embed: hops") == pytest.approx(two)
    assert held.on_disk == 4e8
    assert 7e8 < held.peak < 1e9
    assert seconds(steps, "embed: files") == pytest.approx((4e8 + 2 * 4e8) / 1e9)  # all cached


def test_files_that_memory_cannot_cache_are_read_at_every_hop() -> None:
    machine = Machines(1, 1, 10**9, 1e9, limit=10**9, disk=2e8)
    held = holding(memory=1e9, limit=1e9)
    steps = embed_here("all", replace(MILLION, mapped=True), SMOOTHED, Place(machine, ROUND, held))
    # Two blocks: features once and the adjacency twice for each, the result read and written.
    moved = 2 * (4e8 + 2 * MILLION.adjacency) + 2 * 4e8
    assert seconds(steps, "embed: files") == pytest.approx(moved / 2e8)


def test_a_column_that_does_not_fit_is_told() -> None:
    with pytest.raises(DoesNotFit, match="a single column"):
        embed_here("all", MILLION, SMOOTHED, Place(ONE, ROUND, holding(limit=1.5e8)))


class Fixed(Resources):
    """What always has so many bytes left."""

    left = 0


@dataclass(frozen=True)
class Sizes:
    """What ``_column_blocks`` asks of a graph."""

    num_nodes: int
    num_features: int
    entry_bytes: int


@given(left=st.integers(2 * 10**8, 10**10), wide=st.integers(1, 300))
def test_blocks_are_as_many_as_the_code_cuts(left: int, wide: int) -> None:
    size, smoothing = Size(10_000_000, 1000), Smoothing(SGC(), wide)
    held = Holding(base=0, memory=1e15, limit=left)
    reserve = reserve_of(4 * size.entries, size.nodes)
    assume(size.columns(3) + reserve <= left)  # else not even one fits
    assume(size.columns(3 * wide) + reserve > left)  # else all columns go at once
    assume(not held.stays(size.columns(wide)))  # else the code takes off the room of the result
    resources: Any = type("Given", (Fixed,), {"left": left})()
    sizes: Any = Sizes(size.nodes, wide, 4 * size.entries)
    blocks = len(_column_blocks(SGC(), sizes, torch.empty(0), resources, at_once=1))
    flat = replace(ROUND, gather=(GatherCost(1, 20.0, 0.5),))
    steps = embed_here("all", size, smoothing, Place(ONE, flat, held))
    expected = blocks * hop_seconds(size, smoothing, wide / blocks, flat, 1)
    assert seconds(steps, "embed: hops") == pytest.approx(expected)


@given(size=st.integers(1, 10**10), limit=st.one_of(st.none(), st.integers(10**8, 10**10)))
def test_arrays_stay_where_the_code_keeps_them(size: int, limit: int | None) -> None:
    held = holding(memory=8e9, limit=limit)
    resources = type("Given", (Fixed,), {"left": held.left})(memory=limit)
    assert held.stays(size) == resources.fits(size)


def test_columns_send_the_graph_to_all_and_nothing_between_hops() -> None:
    four = Machines(4, 4, 10**11, 1e9)
    steps = embed_by_columns("all", MILLION, SMOOTHED, Place(four, ROUND, holding(1e11)))
    graph = MILLION.adjacency + 4e8 / 4  # and a quarter of the columns
    moved = {step.name: step.bytes_moved for step in steps if step.where == "link"}
    assert moved == {
        "embed: graph to every machine": 3 * graph,
        "embed: results back": 3e8,
    }
    # 16 workers: 16 blocks of 6.25 columns, all at once.
    assert seconds(steps, "embed: hops") == hop_seconds(MILLION, SMOOTHED, 6.25, ROUND, 1)
    wider = Place(replace(four, threads=4), ROUND, holding(1e11))
    wide = embed_by_columns("all", MILLION, SMOOTHED, wider)
    assert seconds(wide, "embed: hops") == hop_seconds(MILLION, SMOOTHED, 25, ROUND, 4)


def test_nodes_send_all_columns_at_every_hop() -> None:
    four = Machines(4, 4, 10**11, 1e9)
    steps = embed_by_nodes("all", MILLION, SMOOTHED, Place(four, ROUND, holding(1e11)))
    moved = {step.name: step.bytes_moved for step in steps if step.where == "link"}
    assert moved == {
        "embed: rows to every machine": MILLION.adjacency / 4 * 3,
        "embed: columns to every machine": 2 * 3 * 4e8,
        "embed: results back": 2 * 3e8,
    }
    assert seconds(steps, "embed: hops") == hop_seconds(MILLION, SMOOTHED, 100, ROUND, 1) / 16


def test_rows_are_exchanged_over_all_links_at_once() -> None:
    four = Machines(4, 4, 10**11, 1e9)
    steps = embed_by_rows("all", MILLION, SMOOTHED, Place(four, ROUND, holding(1e11)))
    # Three quarters of 400 MB come in at each of two hops, and as much goes out meanwhile.
    [step] = [step for step in steps if step.where == "link"]
    assert step.seconds == pytest.approx(0.6)
    assert step.bytes_moved == 1.2e9


def test_small_graphs_are_not_given_to_others() -> None:
    few = Size(100, 900)
    for way in (embed_by_columns, embed_by_nodes):
        place = Place(Machines(4, 4, 10**11, 1e9), ROUND, holding())
        steps = way("all", few, SMOOTHED, place)
        assert not any(step.bytes_moved for step in steps)


def test_a_node_is_expanded_counted_and_answered() -> None:
    learning = learning_of("analytic", features=3, width=4)
    assert learning.training_flops(classes=2) == 2 * 3 * 4 + 4 * 4  # half of 2 m²: a triangle
    assert learning.validation_flops() == 2 * 3 * 4 + 4 * 4
    assert learning.answer_flops(classes=2) == 2 * 4 * (3 + 2)
    # Chosen among 6: 4³/3 for the factor and 4 m² a class; solved once more, 4 m² a class.
    assert learning.solve_flops(classes=2) == pytest.approx(7 * (64 / 3 + 4 * 16 * 2))
    wide = learning_of("analytic", features=3, width=4096)
    assert wide.validation_flops() == 2 * 3 * 1024 + 1024**2
    assert wide.exam_bytes(4096) == 4 * 4096**2
    assert wide.exam_bytes(4097) == 0.0  # more than is kept


def test_auto_and_tem_have_parts_of_their_own() -> None:
    auto = learning_of("auto", features=100)
    hops, codes = auto.smoothings
    assert (hops.topology.parts, hops.columns, codes.columns) == (5, 100, 64)
    assert auto.dims == 5 * 100 + 2 * 64
    assert auto.heads == 7
    tem = learning_of("tem", features=100)
    assert tem.epochs == 30
    assert tem.solve_flops(10) == 0.0
    # Forward, and twice as much backward, through 512 hidden units in every epoch.
    assert tem.training_flops(10) == 30 * 6 * 512 * 110
    with pytest.raises(UnknownNameError, match="gem"):
        learning_of("gem", features=3)


def test_a_stream_is_cut_embedded_counted_and_tested_task_by_task() -> None:
    facts = GraphFacts("g", 1000, 10_000, 8, (250, 250, 250, 250), homophily=1.0)
    learning = learning_of("analytic", features=8, width=1)
    flat = replace(ROUND, gather=(GatherCost(1, 0.0, 1.0),))
    held = holding()
    steps = Stream(facts, learning, ONE, flat, embed_here).steps(held)
    # Entries that are looked at: two halves for themselves, then one half and all of them.
    looked_at, taken = 10_000 * 2.5, 32_000 * 2.5
    assert seconds(steps, "cut tasks") == pytest.approx(1e-9 * (50 * looked_at + taken))
    # Two hops of 8 columns over halves, half and whole, with self-loops.
    assert seconds(steps, "embed: hops") == pytest.approx(1e-9 * 2 * 8 * (10_000 + 1000) * 2.5)
    # 600 training nodes: 2 x 8 x 1 + 1; 200 for validation: the same at width 1.
    assert seconds(steps, "count statistics") == pytest.approx(800 * 17 / 1e9)
    # Exams: 2 after the first task, 3 after the second; own graphs' features are kept, and of the
    # first task's 100 nodes only the head is asked again.
    asked = (100 + 100) * learning.answer_flops(2) + (200 + 100) * learning.answer_flops(4)
    asked += 100 * 2 * 1 * 4
    assert seconds(steps, "test") == pytest.approx(asked / 2e9 + 5 * 0.01)


def test_subgraphs_have_the_entries_that_homophily_leaves() -> None:
    facts = GraphFacts("g", 100, 1000, 8, (50, 50), homophily=0.6)
    [task] = task_cuts(facts)
    assert (task.own.entries, task.seen.entries) == (1000, 1000)
    [first, second] = task_cuts(facts, classes_per_task=1)
    # Of a half's 500 entries 60 % stay in the class, and half of the others come back to it.
    assert (first.own.entries, second.own.entries, second.seen.entries) == (400, 400, 1000)
    sparse = replace(facts, class_sizes=(25, 25), homophily=1.0)
    assert task_cuts(sparse)[0].own.entries == 250  # half of the neighbours have no class


def test_nodes_without_a_class_come_along_where_they_are_most() -> None:
    facts = GraphFacts("g", 1_000_000, 10_000_000, 8, (500, 500), homophily=1.0)
    [first, second] = task_cuts(facts, classes_per_task=1)
    # 500 nodes have 10 neighbours each, 5,500 then have 10 each: 60,500 less what is met twice.
    # The second task brings as much, less what came with the first.
    assert 55_000 < first.own.nodes < 60_500
    assert second.seen.nodes == pytest.approx(first.own.nodes + second.own.nodes, abs=1)
    assert second.own.nodes < first.own.nodes
    assert (first.own.classified, second.seen.classified) == (500, 1000)
    assert second.seen.training == 600


def test_the_best_way_is_the_fastest_that_fits() -> None:
    facts = facts_by_hand(50e6, 2e9, 100, 10)
    learning = learning_of("analytic", features=100, width=64)
    machines = Machines(4, 16, 128 * 10**9, 1e10)
    plan = make_plan(facts, machines, learning, ROUND, job="embed")
    assert [way.name for way in plan.ways] == ["one machine", "columns", "nodes", "rows"]
    fitting = [way for way in plan.ways if way.misfit is None]
    assert plan.best is min(fitting, key=lambda way: way.seconds)
    told = json.loads(json.dumps(plan.to_dict()))
    assert told["best"] == plan.best.name
    assert told["ways"][0]["seconds"] == pytest.approx(
        sum(step["seconds"] for step in told["ways"][0]["steps"])
    )


def test_what_does_not_fit_says_what_would_make_it_fit() -> None:
    facts = facts_by_hand(111e6, 3.2e9, 128, 10, labelled=1.5e6)
    learning = learning_of("analytic", features=128, width=64)

    def plan(memory: float):
        machines = Machines(1, 4, int(memory), 1e9)
        return make_plan(facts, machines, learning, ROUND, job="embed")

    small = plan(1e9)
    assert small.best is None
    assert small.ways[0].misfit is not None
    assert "3.4 GB of memory are needed for a single column of the features" in small.ways[0].misfit
    named = float(small.ways[0].misfit.rpartition("fit with ")[2].split(" GB")[0])
    assert plan((named + 0.1) * 1e9).best is not None
    assert plan(0.8 * named * 1e9).best is None


def test_more_machines_are_named_where_they_help() -> None:
    facts = facts_by_hand(50e6, 20e9, 16, 10, labelled=1e5)
    learning = learning_of("analytic", features=16, width=64)
    machines = Machines(2, 2, 24 * 10**9, 1e9)
    nodes = make_plan(facts, machines, learning, ROUND, job="embed").ways[2]
    assert nodes.misfit is not None
    assert "machines" in nodes.misfit


def test_facts_of_a_folder_are_those_of_its_graph(tmp_path: Path) -> None:
    graph = load("synthetic", nodes=300, classes=4, features=8)
    writer = GraphFolderWriter(tmp_path / "g")
    for name in ("indptr", "indices", "features", "labels"):
        array = getattr(graph, name)
        writer.create(name, tuple(array.shape), array.dtype).copy_(array)
    writer.finish(undirected=True)
    facts = facts_of(str(tmp_path / "g"))
    assert facts.mapped
    assert replace(facts, mapped=False, name="") == of_graph(graph, "")
    assert facts.entries == graph.num_edges
    assert facts.class_sizes == tuple(torch.bincount(graph.labels).tolist())
    same = graph.labels[graph.edge_rows()] == graph.labels[graph.indices.long()]
    assert facts.homophily == pytest.approx(float(same.float().mean()))


def test_facts_of_a_split_graph_come_from_its_parts(tmp_path: Path) -> None:
    (tmp_path / "part-00000").mkdir()
    known = {"nodes": 6, "entries": 10, "features": 3, "undirected": True}
    (tmp_path / "split.json").write_text(json.dumps(known))
    with pytest.raises(ConfigurationError, match="no part"):
        facts_of(str(tmp_path))
    np.save(tmp_path / "part-00000" / "labels.npy", np.array([0, 2, -1]))
    assert facts_of(str(tmp_path)).class_sizes == (1, 0, 1)
    assert (facts_of(str(tmp_path)).nodes, facts_of(str(tmp_path)).entries) == (6, 10)
    (tmp_path / "split.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be read"):
        facts_of(str(tmp_path))


def test_a_twin_is_known_before_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERGRAPH_CACHE", str(tmp_path))
    before = facts_of("products-twin", scale=0.002)
    assert not any(tmp_path.iterdir())
    graph = ProductsTwin(scale=0.002).load(tmp_path)
    after = facts_of("products-twin", scale=0.002)
    assert (before.nodes, before.class_sizes) == (after.nodes, after.class_sizes)
    assert before.entries == pytest.approx(graph.num_edges, rel=0.02)
    assert before.homophily == pytest.approx(after.homophily, abs=0.05)


def test_facts_of_a_name_are_the_catalogue_s() -> None:
    facts = facts_of("arxiv")
    assert (facts.nodes, facts.entries, facts.labelled) == (169_343, 2 * 1_166_243, 169_343)
    assert len(facts.class_sizes) == 40
    with pytest.raises(UnknownNameError):
        facts_of("archive")
    with pytest.raises(ConfigurationError, match="--nodes"):
        facts_of("synthetic")


def test_constants_are_kept_and_used_from_then_on(tmp_path: Path) -> None:
    shipped = read_constants(tmp_path)
    path = write_constants(ROUND, tmp_path)
    assert read_constants(tmp_path) == ROUND != shipped
    path.write_text("{}")
    with pytest.raises(DataError, match="--measure"):
        read_constants(tmp_path)


@pytest.mark.parametrize("text", ["25", "Gbit", "0Gbit", "-1GB", "25Gbyte"])
def test_a_rate_must_have_a_unit(text: str) -> None:
    with pytest.raises(ConfigurationError, match="25Gbit"):
        parse_rate(text)


@pytest.mark.slow
def test_this_machine_can_be_measured() -> None:
    from evergraph.experiments.planning.measuring import measure

    found = measure(cores=1)
    assert all(point.entry_ns + point.column_ns > 0 for point in found.gather)
    assert found.process_bytes > 1e8
    assert found.gather_speedup == pytest.approx(1.0, abs=0.5)
