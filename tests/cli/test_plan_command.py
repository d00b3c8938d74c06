"""``evergraph plan`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evergraph.datasets import load
from evergraph.datasets.files.npz import write_npz

BIG = ("--nodes", "245e6", "--edges", "12.4e9", "--features", "100", "--classes", "47")
FOUR = ("--machines", "4", "--memory", "128GB", "--link", "25Gbit", "--cores", "16")


def test_a_plan_tells_every_way_and_marks_the_best(call: Any) -> None:
    out, _ = call("plan", *BIG, *FOUR, "--job", "embed", "--method", "analytic")
    assert "245,000,000 nodes, 12,400,000,000 entries" in out
    assert "adjacency 51.6 GB, features 98.0 GB" in out
    for way in ("one machine", "columns", "nodes", "rows"):
        assert way in out
    assert "(best)" in out
    assert "Constants: " in out


def test_a_plan_for_programs_is_one_object(call: Any) -> None:
    told = json.loads(call("plan", "arxiv", "--memory", "16GB", "--cores", "4", "--json")[0])
    [way] = told["ways"]
    assert told["best"] == way["name"] == "one machine"
    assert way["seconds"] > 0
    assert way["misfit"] is None
    assert told["facts"]["nodes"] == 169_343


def test_a_plan_of_a_file_counts_what_is_in_it(call: Any, tmp_path: Path) -> None:
    graph = load("synthetic", nodes=60, classes=3, features=5)
    write_npz(graph, tmp_path / "mine.npz")
    told = json.loads(call("plan", "mine.npz", "--json")[0])
    assert told["best"] == "one machine"
    facts = told["facts"]
    assert (facts["name"], facts["nodes"], facts["features"]) == ("mine.npz", 60, 5)
    assert facts["entries"] == graph.num_edges
    assert "no such file or folder: none.npz" in call("plan", "none.npz", expect=2)[1]


def test_what_does_not_fit_is_said_in_a_sentence(call: Any) -> None:
    out, _ = call("plan", *BIG, "--memory", "2GB", "--cores", "4", "--method", "analytic")
    assert "one machine does not fit: " in out
    assert "it would fit with" in out


def test_unlabelled_nodes_are_pointed_out(call: Any) -> None:
    out, _ = call("plan", *BIG, *FOUR, "--labelled", "1e6", "--method", "analytic")
    assert "The 244,000,000 nodes without a class come along" in out


def test_wrong_options_are_one_sentence(call: Any) -> None:
    for arguments, sentence in (
        ((), "a plan takes a dataset, or its sizes"),
        (("--nodes", "10"), "--edges and --features and --classes are missing"),
        (("arxiv", "--nodes", "10"), "leave one out"),
        (("arxiv", "--link", "fast"), "25Gbit"),
        (("arxiv", "--machines", "0"), "machines must be"),
        (("arxiv", "--job", "dance"), "job"),
        (("arxiv", "--method", "gem"), "method"),
        ((*BIG[:1], "-3", *BIG[2:]), "nodes must be at least 1"),
    ):
        assert sentence in call("plan", *arguments, expect=2)[1], arguments
