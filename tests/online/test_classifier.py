"""The classifier takes what users have and answers in kind."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    DuplicateNodeError,
    KeyReusedError,
    UnknownNodeError,
)
from evergraph.graphs.csr import densify
from evergraph.online.classifier import ContinualNodeClassifier
from evergraph.online.conversion import as_edges, as_features, as_ids
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner
from evergraph.online.rows import as_targets
from evergraph.topology import S2GC, SGC
from pyg import pyg_data, pyg_hetero

X = np.eye(4, dtype=np.float32)


def small(**parameters) -> ContinualNodeClassifier:
    return ContinualNodeClassifier(width=48, **parameters)


def started(**parameters) -> ContinualNodeClassifier:
    model = small(**parameters)
    return model.partial_fit(
        ["a", "b", "c", "d"], X, ["x", "x", "y", None], [("a", "b"), ("c", "d")]
    )


def test_numpy_in_numpy_out():
    model = started()
    assert model.predict(np.array(["a", "d"])).tolist() == ["x", "y"]
    assert model.classes_.tolist() == ["x", "y"]
    probabilities = model.predict_proba(["a", "d"])
    assert isinstance(probabilities, np.ndarray)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    assert model.classes_[probabilities.argmax(1)].tolist() == ["x", "y"]
    far = [0.5**0.5, 0.5**0.5, 0, 0] * 2  # one hop and two, beside its own features
    np.testing.assert_allclose(model.embed(["a"]), [[1, 0, 0, 0, *far]], rtol=1e-6)


def test_pandas_in_pandas_out():
    frame = pd.DataFrame(X, columns=list("pqrs"), index=[10, 11, 12, 13])
    labels = pd.Series([1, 1, 2, None])  # a table with a gap holds floats
    edges = pd.DataFrame({"target": [11, 13], "weight": [1, 1], "source": [10, 12]})
    model = small().partial_fit(frame.index, frame, labels, edges)
    asked = pd.Series([10, 13], index=["first", "second"])
    predicted = model.predict(asked)
    assert predicted.to_dict() == {"first": 1, "second": 2}
    assert model.predict(frame.index).index.equals(frame.index)
    table = model.predict_proba(asked)
    assert list(table.columns) == [1, 2]
    assert list(table.index) == ["first", "second"]
    assert model.embed(asked).shape == (2, 12)  # three hops of four columns
    assert model.classes_.dtype == np.int64


def test_torch_in_torch_out():
    ids, y = torch.arange(4), torch.tensor([0, 0, 5, -1])
    edges = torch.tensor([[0, 2], [1, 3]])
    model = small().partial_fit(ids, torch.eye(4), y, edges)
    assert model.status().labelled == 3
    assert model.predict(ids).equal(torch.tensor([0, 0, 5, 5]))
    assert isinstance(model.predict_proba(ids), torch.Tensor)
    assert isinstance(model.embed(ids), torch.Tensor)


def test_a_data_object_holds_everything():
    data = pyg_data(
        x=torch.eye(4), edge_index=torch.tensor([[0, 2], [1, 3]]), y=torch.tensor([0, 0, 5, -1])
    )
    plain = small().partial_fit(data)
    named = small().partial_fit(data, ids=["a", "b", "c", "d"])
    assert plain.predict([0, 3]).tolist() == named.predict(["a", "d"]).tolist() == [0, 5]
    with pytest.raises(DuplicateNodeError):
        plain.partial_fit(data)
    with pytest.raises(DataError, match="ids must be as many as rows of x, not 1 for 4"):
        small().partial_fit(data, ids=["a"])
    data.edge_index = torch.tensor([[0], [4]])
    with pytest.raises(DataError, match="edge 0 joins 0 and 4, but nodes are numbered 0 to 3"):
        small().partial_fit(data)


def test_what_was_given_is_not_kept():
    x = X.copy()
    model = small().partial_fit(["a", "b"], x[:2], ["x", "y"])
    x[:] = 9
    np.testing.assert_array_equal(model.embed(["a", "b"]), np.tile(X[:2], 3))


def test_score():
    model = started()
    assert model.score(["a", "b", "d", "c"], ["x", "x", "x", "y"]) == 0.75
    assert model.score(["a", "b", "d", "c"], ["x", "x", "x", "y"], balanced=True) == pytest.approx(
        (2 / 3 + 1) / 2
    )


def test_a_key_counts_once_whatever_is_done():
    model = started()
    ways = (
        lambda key: model.partial_fit(["e"], X[:1], ["x"], key=key),
        lambda key: model.label(["d"], ["y"], key=key),
        lambda key: model.update_features(["a"], X[3:], key=key),
        lambda key: model.remove_edges([("b", "a")], key=key),
        lambda key: model.forget(["b"], key=key),
        lambda key: model.refit(key=key),
    )
    for seq, change in enumerate(ways, start=2):
        for _ in range(2):
            change(f"day {seq}")
            assert model.applied_.seq == model.status().seq == seq
    with pytest.raises(KeyReusedError, match="'day 2' belongs to delta 2"):
        model.partial_fit(["f"], X[:1], ["x"], key="day 2")
    with pytest.raises(DuplicateNodeError):
        model.partial_fit(["a"], X[:1], key="refused")
    model.partial_fit(["f"], X[:1], key="refused")  # what was refused did not take the key
    assert model.status().nodes == 5


def test_parameters_in_scikit_learns_manner():
    model = small(topology=S2GC(hops=3), seed=4)
    assert model.get_params()["topology"] is model.topology
    assert ContinualNodeClassifier(**model.get_params()).get_params() == model.get_params()
    assert model.set_params(seed=5).seed == 5
    assert "seed=5" in repr(model)
    with pytest.raises(ConfigurationError, match="no parameter 'sead': did you mean 'seed'"):
        model.set_params(sead=1)
    assert model.set_params(topology__hops=2).topology.hops == 2
    assert small(random_state=7).learner_.seed == 7


def test_a_part_is_taken_by_name_as_a_table_and_as_an_object(tmp_path):
    ids = ["a", "d"]
    ways = {
        "by name": {"topology": "sgc", "head": "analytic", "width": 48},
        "table": {"topology": {"name": "sgc"}, "head": {"name": "analytic", "width": 48}},
        "object": {"topology": SGC(), "head": AnalyticHead(width=48)},
    }
    asked = []
    for way, parts in ways.items():
        for model in (
            ContinualNodeClassifier(**parts),
            ContinualNodeClassifier.open(tmp_path / way, **parts),
        ):
            model.partial_fit(["a", "b", "c", "d"], X, ["x", "x", "y", None], [("a", "b")])
            asked.append(model.predict_proba(ids))
            assert isinstance(model.learner_.head, AnalyticHead)
            assert model.learner_.head.width == 48
            model.close()
    assert all(np.array_equal(each, asked[0]) for each in asked)
    with ContinualNodeClassifier.open(tmp_path / "object") as opened:
        assert opened.learner_.head.width == 48
    learner = OnlineLearner(head={"name": "auto", "width": 7}, topology="sgc")
    assert (learner.head.name, learner.head.width, learner.topology.name) == ("auto", 7, "sgc")
    assert OnlineLearner(head="auto").parameters == OnlineLearner().parameters
    with pytest.raises(ConfigurationError, match="a table of a head must have a name"):
        OnlineLearner(head={})
    with pytest.raises(ConfigurationError, match="topology must be its name, a table of name"):
        OnlineLearner(topology=3)
    with pytest.raises(ConfigurationError, match="width cannot be given beside a head that is an"):
        ContinualNodeClassifier(head=AnalyticHead(), width=3).status()


READ = {
    "ids": as_ids,
    "features": lambda values: densify(as_features(values, 2)),
    "labels": lambda values: as_targets("class", values, 2),
    "edges": as_edges,
}


@pytest.mark.parametrize(
    ("part", "values", "found"),
    [
        ("ids", np.array([1, 2], dtype=np.uint8), [1, 2]),
        ("ids", np.array(["a", 1], dtype=object), ["a", 1]),
        ("ids", range(2), [0, 1]),
        ("ids", [np.int64(1), np.str_("a")], [1, "a"]),
        ("edges", np.array([[0, 7], [7, 3]]), [(0, 7), (7, 3)]),
        ("edges", np.array([["a", "b"]]), [("a", "b")]),
        ("edges", np.empty((0, 2), dtype=np.int64), []),
        ("labels", np.array([-1, 1]), [-1, 1]),
        ("labels", torch.tensor([-1, 1]), [None, 1]),  # where it means none
        ("labels", pd.Series(["x", pd.NA], dtype="string"), ["x", None]),
        ("labels", pd.Series([None, float("nan")], dtype="string"), [None, None]),
        ("labels", pd.Categorical(["x", None]), ["x", None]),
        ("labels", pd.array([1, None], dtype="Int64"), [1, None]),
        ("features", [[1, 0], [0, 2]], [[1.0, 0.0], [0.0, 2.0]]),
        ("features", np.array([[1, 0], [0, 2]]), [[1.0, 0.0], [0.0, 2.0]]),
        ("features", csr_matrix([[1.0, 0], [0, 2]]), [[1.0, 0.0], [0.0, 2.0]]),
        ("features", torch.tensor([[1, 0], [0, 2]]).to_sparse_csr(), [[1.0, 0.0], [0.0, 2.0]]),
    ],
)
def test_what_is_read(part, values, found):
    read = READ[part](values)
    read = read.tolist() if isinstance(read, torch.Tensor) else list(read)
    assert read == found
    assert [type(each) for each in read] == [type(each) for each in found]


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("ids", "abc", "nodes must be a list or an array, not 'abc'"),
        ("ids", 5, "nodes must be a list or an array, not 5"),
        ("ids", [1.5], "id in nodes must be text or an integer, not 1.5"),
        ("ids", np.array([True]), "not True"),
        ("ids", torch.tensor([0.5]), "not 0.5"),
        ("ids", torch.tensor(3), "not a single 3"),
        ("ids", [("a", "b")], r"nodes must be ids, not \('a', 'b'\): give edges alone as edges="),
        ("features", np.zeros((3, 2)), r"shape \(3, 2\)"),
        ("edges", pd.DataFrame(columns=list("abc")), "edges have columns a, b, c: expected source"),
        ("features", np.zeros(2), r"shape \(2,\)"),
        ("features", [["a"], ["b"]], "features must be a matrix of numbers"),
        ("features", [[1], [1, 2]], "features must be a matrix of numbers"),
        ("features", torch.zeros(2, 1, dtype=torch.complex64), "expected real numbers"),
        ("labels", ["x"], "labels must be as many as nodes, not 1 for 2 nodes"),
        ("labels", [0.5, 1.0], "label must be text or an integer, not 0.5"),
        ("labels", torch.tensor([0.0, 1.0]), "labels hold torch.float32: expected integers"),
        ("edges", np.zeros((2, 3), dtype=np.int64), r"shape \(2, 3\): expected \[edges, 2\]"),
        ("edges", np.zeros(4, dtype=np.int64), r"shape \(4,\): expected \[edges, 2\]"),
        ("edges", torch.zeros(3, 2, dtype=torch.int64), r"shape \(3, 2\): expected \[2, edges\]"),
        ("edges", [("a",)], r"an edge must join two nodes, not \('a',\)"),
        ("edges", ["ab"], "an edge must join two nodes, not 'ab'"),
        ("edges", [("a", None)], "not None"),
        ("features", np.ones((2, 2)) * 1j, "expected real numbers"),
    ],
)
def test_what_is_none_of_these(part, values, message):
    with pytest.raises(DataError, match=message):
        READ[part](values)


TABLE = pd.DataFrame({"id": ["a", "b"], "label": ["x", "y"], "type": ["p", "q"], "f": [1, 2]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nodes": ["a"], "features": X[:1], "ids": ["b"]}, "ids are for a Data object: give node"),
        ({"nodes": TABLE, "features": X[:2]}, "features and labels are columns of a table of node"),
        ({"nodes": TABLE, "labels": ["x", "y"]}, "features and labels are columns of a table of n"),
        ({"nodes": TABLE, "types": ["p", "q"]}, "types are given, but nodes have a column 'type'"),
        (
            {"edges": [("a", "z")], "edge_weights": [1.0, 2.0], "unknown_edges": "skip"},
            "not 2 for 1 edges",
        ),
        ({"nodes": ["a"], "features": TABLE[["f"]]}, "has 2 rows: expected 1, one per node"),
    ],
)
def test_what_contradicts_itself_is_said(given, said):
    model = small()
    with pytest.raises((ConfigurationError, DataError), match=said):
        model.partial_fit(**given)
    assert model.status().nodes == 0
    with pytest.raises(ConfigurationError, match="give ids of nodes, or rows of new ones"):
        started().predict(None)


def test_a_frame_whose_columns_have_no_names_may_hold_texts():
    model = small().partial_fit(["a", "b"], pd.DataFrame([["red", 1.0], ["blue", 2.0]]), ["x", "y"])
    assert [row["column"] for row in model.reading_] == ["0", "1"]


def test_a_folder_keeps_it(tmp_path):
    path = tmp_path / "kept"
    with ContinualNodeClassifier.open(path, width=48, topology=SGC(hops=1)) as model:
        model.partial_fit(["a", "b", "c"], X[:3], ["x", "y", None], [("a", "b")], key="monday")
        before = model.predict_proba(["a", "b", "c"])
    with ContinualNodeClassifier.open(path) as again:
        assert again.get_params()["width"] == 48
        assert again.topology.hops == 1
        assert np.array_equal(again.predict_proba(["a", "b", "c"]), before)
        again.partial_fit(["a", "b", "c"], X[:3], ["x", "y", None], [("a", "b")], key="monday")
        assert again.status().seq == 1
        reader = ContinualNodeClassifier.open(path, readonly=True)
        again.label(["c"], ["z"])
        assert reader.refresh() == 1
        assert reader.predict(["c"]).tolist() == ["z"]
        reader.close()
    with pytest.raises(ConfigurationError, match="head"):
        ContinualNodeClassifier.open(path, width=47, topology=SGC(hops=1))


def test_what_is_not_used_is_said(caplog):
    edges = pd.DataFrame({"source": ["a"], "target": ["b"], "kind": [0.5]})
    model = small().partial_fit(["a", "b"], torch.eye(2), ["x", "y"], edges)
    assert model.status().edges == 1
    data = pyg_data(
        x=torch.eye(2),
        edge_index=torch.tensor([[0], [1]]),
        y=torch.tensor([0, 1]),
        edge_weight=torch.ones(1),
        time=torch.tensor([1, 2]),
    )
    small().partial_fit(data)
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in said] == [
        "edges: column 'kind' is ignored: only source, target, weight and relation of edges are "
        "used",
        "Data: attribute 'time' is ignored: only x, edge_index, edge_weight and y are used",
    ]


def test_weights_come_in_many_ways():
    given = {"nodes": [0, 1, 2], "features": torch.eye(3), "labels": ["x", "y", None]}
    pairs, weights = [(0, 1), (1, 2)], [0.5, 4.0]
    frame = pd.DataFrame({"source": [0, 1], "target": [1, 2], "weight": weights})
    index = torch.tensor(pairs).t()
    data = pyg_data(x=torch.eye(3), edge_index=index, edge_attr=torch.tensor(weights)[:, None])
    models = [
        small().partial_fit(**given, edges=pairs, edge_weights=weights),
        small().partial_fit(**given, edges=pairs, edge_weights=np.array(weights, np.float32)),
        small().partial_fit(**given, edges=index, edge_weights=torch.tensor(weights)),
        small().partial_fit(**given, edges=frame),
        small().partial_fit(data, ids=[0, 1, 2]).label([0, 1], ["x", "y"]),
        small().partial_fit(**given, edges=pairs).partial_fit([], edges=frame),
    ]
    first, *others = (model.embed([0, 1, 2]) for model in models)
    assert all(np.array_equal(first, other) for other in others)
    assert not np.array_equal(first, small().partial_fit(**given, edges=pairs).embed([0, 1, 2]))
    with pytest.raises(DataError, match="edge 1 has weight -1: expected 0, for no edge"):
        models[0].partial_fit([], edges=pairs, edge_weights=[1, -1])
    with pytest.raises(DataError, match="have a column 'weight' as well"):
        models[0].partial_fit([], edges=frame, edge_weights=weights)
    with pytest.raises(ConfigurationError, match="edge_weights are part of a Data object"):
        small().partial_fit(data, edge_weights=weights)


def test_edges_go_and_features_change():
    plain = small().partial_fit(["a", "b"], [[0.0, 3.0], [2.0, 1.0]], ["x", "y"])
    model = small().partial_fit(["a", "b"], np.eye(2), ["x", "y"], [("a", "b")])
    model.remove_edges([("b", "a")]).update_features(["a"], [[0.0, 3.0]])
    model.update_features(["b"], [[2.0, 1.0]])
    assert np.array_equal(model.embed(["a", "b"]), plain.embed(["a", "b"]))
    assert np.allclose(model.predict_proba(["a", "b"]), plain.predict_proba(["a", "b"]), atol=1e-5)


def test_a_folder_takes_some_parameters_and_keeps_the_rest(tmp_path):
    with LearnerFolder.open(tmp_path / "f", {"head": {"width": 8}, "seed": 3}) as folder:
        made = folder.learner.parameters
    assert (made["head"]["name"], made["head"]["width"], made["seed"]) == ("auto", 8, 3)
    with LearnerFolder.open(tmp_path / "f", {"seed": 3}) as folder:
        assert folder.learner.parameters == made
    with ContinualNodeClassifier.open(tmp_path / "f") as model:
        assert model.learner_.parameters == made
    with LearnerFolder.open(tmp_path / "g", {"head": {"name": "analytic"}}) as folder:
        assert folder.learner.parameters == OnlineLearner(head="analytic").parameters
    for other in ({"seed": 4}, {"head": {"name": "analytic"}}):
        with pytest.raises(ConfigurationError):
            LearnerFolder.open(tmp_path / "f", other)


def test_an_id_that_is_not_there_names_the_one_that_was_meant():
    hetero = pyg_hetero()
    hetero["customer"].x, hetero["customer"].y = torch.eye(2), torch.tensor([0, 1])
    hetero["shop"].num_nodes = 1
    hetero["customer", "visits", "shop"].edge_index = torch.tensor([[0, 1], [0, 0]])
    model = ContinualNodeClassifier(width=16).partial_fit(hetero)
    assert model.predict(["customer/1"]).tolist() == [1]
    assert model.learner_.neighbourhood("shop/0").nodes == ("shop/0", "customer/0", "customer/1")
    for ask in (model.predict, lambda ids: model.explain(ids[0])):
        with pytest.raises(UnknownNodeError, match="did you mean 'customer/1'"):
            ask([1])
        with pytest.raises(UnknownNodeError, match="'customer/0' or 'shop/0'"):
            ask([0])
    hetero["customer", "visits", "shop"].edge_index = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(DataError, match="expected each edge once"):
        ContinualNodeClassifier(width=16).partial_fit(hetero, repeated="refuse")
    model = ContinualNodeClassifier(width=16).partial_fit([1, 2], torch.eye(2), ["x", "y"])
    with pytest.raises(UnknownNodeError, match=r"node '1' is not in the graph: did you mean 1\?"):
        model.predict(["1"])
