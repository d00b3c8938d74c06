from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import DataError
from evergraph.datasets.catalogue import Facts, catalogue, check_facts
from evergraph.datasets.files.npz import read_npz
from evergraph.graphs import Graph

TINY = Facts(
    title="tiny", nodes=4, edges=3, features=2, classes=2, tasks=1, directed=True, source="here"
)


def test_every_published_dataset_has_facts() -> None:
    for module in ("published", "ogb"):
        importlib.import_module(f"evergraph.datasets.{module}")
    from evergraph.datasets.base import datasets
    from evergraph.datasets.published import Published

    published = {n for n in datasets.names() if issubclass(datasets.resolve(n), Published)}
    bundled = {name for name in catalogue() if name.startswith("wordnet")}
    assert published == set(catalogue()) - bundled


def test_tasks_have_two_classes_each() -> None:
    for name, facts in catalogue().items():
        assert facts.tasks == facts.classes // 2, name


def test_symmetric_graphs_have_an_even_number_of_entries() -> None:
    for name, facts in catalogue().items():
        assert facts.directed or facts.edges % 2 == 0, name


def test_a_graph_that_agrees_passes(tiny: Graph, set_facts: Any) -> None:
    set_facts(tiny=TINY)
    check_facts("tiny", tiny)
    check_facts("unheard-of", tiny)


def test_each_fact_that_differs_is_named(tiny: Graph, set_facts: Any) -> None:
    set_facts(tiny=TINY)
    other = Graph.from_edges(
        torch.tensor([[0], [1]]), features=torch.ones(5, 1), labels=torch.tensor([0, 1, 2, 3, 4])
    )
    with pytest.raises(DataError) as caught:
        check_facts("tiny", other)
    assert str(caught.value) == (
        "dataset 'tiny' is not the published one: nodes should be 4 but are 5, edges should be 3 "
        "but are 1, features should be 2 but are 1, classes should be 2 but are 5"
    )


def test_kept_edges_go_before_published_ones(tiny: Graph, set_facts: Any) -> None:
    facts = {**vars(TINY), "edges": 7, "kept_edges": 3}
    set_facts(tiny=Facts(**facts))
    check_facts("tiny", tiny)


@pytest.mark.parametrize(
    ("name", "file"), [("coauthor-cs", "coauthor_cs"), ("computers", "amazon_computers")]
)
def test_facts_hold_for_real_data(shared: Path, name: str, file: str) -> None:
    check_facts(name, read_npz(shared / f"{file}.npz").to_undirected())
