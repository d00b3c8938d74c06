"""Graphs as people hold them: without features, as edges alone, with ids made floats."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.classifier import ContinualNodeClassifier
from pyg import pyg_data


def small(**parameters) -> ContinualNodeClassifier:
    return ContinualNodeClassifier(width=32, **parameters)


def test_the_karate_club_is_learned_as_networkx_gives_it(caplog):
    club = nx.karate_club_graph()
    faction = dict(club.nodes(data="club"))
    for node in range(0, 34, 3):
        del club.nodes[node]["club"]
    model = small().partial_fit(club)
    assert "the attribute 'club' is taken as the label" in caplog.text
    assert "there are no features: a column of ones is used" in caplog.text
    right = [faction[node] for node in range(0, 34, 3)]
    found = model.predict(list(range(0, 34, 3))).tolist()
    assert np.mean([a == b for a, b in zip(found, right, strict=True)]) >= 0.75
    assert small().fit(club, None).status().nodes == 34


def test_a_data_object_needs_no_features():
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])  # two triangles
    data = pyg_data(edge_index=edges, y=torch.tensor([0, 0, -1, 1, 1, -1]), num_nodes=6)
    assert small().partial_fit(data).predict([2, 5]).tolist() == [0, 1]


@pytest.mark.parametrize("as_table", [False, True])
def test_an_edge_list_alone_is_learned_by_labels_nearby(as_table, caplog):
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "e"), ("e", "f"), ("d", "f")]
    labels = {"a": "x", "b": "x", "d": "y", "e": "y"}
    given = pd.DataFrame(edges, columns=["source", "target"]) if as_table else edges
    model = small().partial_fit(edges=given, labels=labels)
    assert model.predict(["c", "f"]).tolist() == ["x", "y"]
    model.partial_fit(edges=[("g", "f"), ("g", "d")], labels={"f": "y"})  # goes on
    assert model.predict(["g"]).tolist() == ["y"]
    assert model.predict(["h"], edges=[("h", "a"), ("h", "b")]).tolist() == ["x"]  # adds nothing
    assert model.status().nodes == 7
    assert caplog.text.count("there are no features") == 1
    other = small().fit(y=pd.Series(labels), edges=given)
    assert other.predict(["c", "f"]).tolist() == ["x", "y"]


@pytest.mark.parametrize("rows", [[[1.0, 2.0]] * 2, [[1.0], [3.0]]])
def test_features_cannot_stop_once_there_are_some(rows):
    model = small().partial_fit(["a", "b"], rows, ["x", "y"])
    said = f"features must be given for 1 new nodes, {len(rows[0])} a node"
    with pytest.raises(DataError, match=said):
        model.partial_fit(["c"])


@pytest.mark.parametrize("edges", [[("a", "b", 0.5)], [["a", "b", 0.5]]])
def test_edges_are_triples_with_a_weight(edges):
    model = small().partial_fit(["a", "b"], np.eye(2), ["x", "y"], edges)
    plain = small().partial_fit(["a", "b"], np.eye(2), ["x", "y"], [("a", "b")], edge_weights=[0.5])
    np.testing.assert_array_equal(model.embed(["a", "b"]), plain.embed(["a", "b"]))
    with pytest.raises(ConfigurationError, match="edges hold weights as well"):
        model.partial_fit([], edges=edges, edge_weights=[1.0])


def test_an_array_of_triples_has_weights():
    edges = np.array([[0, 1, 0.5], [1, 2, 2.0], [0, 2, 1.0]])
    model = small().partial_fit([0, 1, 2], np.eye(3), [0, 1, None], edges)
    assert model.status().edges == 3


def test_ids_that_pandas_made_floats_are_whole_again(caplog):
    ids = pd.Series([58.0, 59.0, None]).dropna()
    edges = pd.DataFrame({"source": [58.0], "target": [59.0]})
    model = small().partial_fit(ids, np.eye(2), ["x", "y"], edges)
    assert "58.0 is read as 58" in caplog.text
    assert model.predict([58, 59]).tolist() == ["x", "y"]
    with pytest.raises(DataError, match=r"not 58\.5"):
        model.predict([58.5])


def test_several_rows_by_id_are_asked_about_without_adding_them():
    model = small().partial_fit(["a", "b"], np.eye(2), ["x", "y"])
    rows, edges = {"c": [0.0, 1.0], "d": [1.0, 0.0]}, [("c", "b", 1.0), ("c", "d", 0.5)]
    shares = model.predict_proba(rows=rows, edges=edges)
    assert model.status().nodes == 2
    model.partial_fit(list(rows), list(rows.values()), edges=edges)
    np.testing.assert_array_equal(model.predict_proba(["c", "d"]), shares)
