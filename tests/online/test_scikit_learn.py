"""The classifier under scikit-learn's own checks, and in its tools."""

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from evergraph.core.errors import ConfigurationError, InvalidRowsError, NothingLearnedError
from evergraph.online.classifier import ContinualNodeClassifier

pytest.importorskip("sklearn")
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

EXCEPTED = {
    "check_fit_score_takes_y": (
        "partial_fit takes ids, features, labels and edges in this order, and rows with y as well: "
        "the check looks at the name of the second argument"
    )
}


def small(**parameters) -> ContinualNodeClassifier:
    options = {"views": ["0"], "regularisation": 0.01}
    return ContinualNodeClassifier(width=16, head_options=options, **parameters)


with warnings.catch_warnings():  # that the core does not inherit from scikit-learn
    warnings.simplefilter("ignore")

    @parametrize_with_checks(
        [small(topology="identity")], expected_failed_checks=lambda _: EXCEPTED
    )
    def test_scikit_learns_checks(estimator, check):
        check(estimator)


@pytest.fixture(scope="module")
def iris() -> tuple[pd.DataFrame, pd.Series]:
    table = load_iris(as_frame=True)
    return table.data, table.target_names[table.target]


def test_its_tools_work_on_a_table_without_edges(iris):
    X, y = iris
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), small())
    model.set_output(transform="pandas")
    assert cross_val_score(model, X, y, cv=3).mean() > 0.85
    search = GridSearchCV(small(), {"width": [8, 16], "topology__hops": [1]}, cv=2)
    search.estimator.set_params(topology=small().learner_.topology)
    search.fit(X.to_numpy(), y)
    assert search.best_estimator_.topology.hops == 1
    assert is_classifier(small())
    assert is_regressor(small(targets="numbers"))
    assert clone(small(random_state=3)).random_state == 3


def test_fit_begins_anew_and_partial_fit_goes_on(iris):
    X, y = iris
    model = small().fit(X[:100], y[:100])
    model.partial_fit(X[100:], y[100:])
    assert model.status().nodes == 150
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    model.fit(X[::2], y[::2])
    assert model.status().nodes == 75
    assert model.predict([0, 2]).tolist() == ["setosa", "setosa"]  # the index has the ids
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == X.columns.tolist()


def test_edges_of_a_table_join_its_index():
    X = pd.DataFrame({"size": [1.0, 2.0, 3.0]}, index=["ada", "bob", "cem"])
    model = small().fit(X, ["art", "law", None], edges=[("ada", "cem")])
    assert model.status().edges == 1
    assert model.status().labelled == 2
    known = model.predict_proba(["ada", "bob", "cem"])
    np.testing.assert_array_equal(model.predict_proba(X), known)  # the nodes that they are
    moved = X.assign(size=[9.0, 9.0, 9.0])
    assert not np.array_equal(model.predict_proba(moved), known)
    assert model.predict(X).index.tolist() == ["ada", "bob", "cem"]


def test_scores_agree_with_each_other():
    X, y = [[0.0, 1.0], [1.0, 0.0], [1.0, 0.2]], ["a", "b", "b"]
    model = small().fit(X, y)
    shares = model.predict_proba(X)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(shares), rtol=1e-6)
    odds = np.log(shares[:, 1] / shares[:, 0])
    np.testing.assert_allclose(model.decision_function(X), odds, rtol=1e-4)
    assert model.score(X, y) == 1.0
    assert model.score([0, 1, 2], ["a", "b", "a"]) == 2 / 3  # in double precision
    np.testing.assert_array_equal(model.predict_proba(csr_matrix(X)), shares)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X": [[1.0], [2.0]], "y": [0.5, 1.2]}, "continuous"),
        ({"X": [[1.0], [2.0]], "y": None}, "requires y to be passed"),
        ({"X": [1.0, 2.0], "y": [0, 1]}, "Reshape your data"),
        ({"X": [[1.0], [2.0]], "y": [[0, 1], [1, 1]]}, "label must be text"),
        ({"X": [[1.0], [2.0]], "y": np.eye(2)}, "several labels of a row need targets='labels'"),
        ({"X": [[1.0], [2.0]], "y": [0, 1], "sample_weight": [1, 2]}, "sample_weight cannot be"),
    ],
)
def test_what_cannot_be_learned_is_said_in_a_sentence(given, message):
    with pytest.raises(InvalidRowsError, match=message):
        small().fit(**given)


def test_an_indicator_matrix_holds_several_labels():
    X, y = np.eye(3), np.array([[1, 0], [0, 1], [1, 1]])
    model = ContinualNodeClassifier(width=16, targets="labels").fit(X, y)
    assert model.predict(X) == [["t0"], ["t1"], ["t0", "t1"]]
    assert model.predict(X) == model.predict([0, 1, 2])


def test_nothing_is_learned_yet():
    from sklearn.exceptions import NotFittedError

    for error in (NotFittedError, NothingLearnedError):
        with pytest.raises(error, match="call fit or partial_fit first"):
            small().predict([[1.0]])


@pytest.mark.parametrize("way", ["pickle", "joblib", "save"])
def test_a_model_comes_back(way, tmp_path, iris):
    X, y = iris
    model = small().fit(X, y, edges=[(0, 1), (2, 60)])
    if way == "pickle":
        other = pickle.loads(pickle.dumps(model))  # noqa: S301
    elif way == "joblib":
        joblib.dump(model, tmp_path / "model")
        other = joblib.load(tmp_path / "model")
    else:
        model.save(tmp_path / "model")
        other = ContinualNodeClassifier.load(tmp_path / "model")
    pd.testing.assert_frame_equal(other.predict_proba(X), model.predict_proba(X))
    assert other.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    other.partial_fit([200], X[:1], ["new"])
    assert "new" not in model.classes_


def test_a_saved_model_goes_on_in_its_folder(tmp_path):
    model = small().fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    model.save(tmp_path)
    with pytest.raises(ConfigurationError, match="must be a new or empty folder"):
        model.save(tmp_path)
    for label in ("c", "d"):
        with ContinualNodeClassifier.open(tmp_path) as opened:
            opened.partial_fit([label], [[1.0, 1.0]], [label])
            with pytest.raises(ConfigurationError, match="fit begins anew"):
                opened.fit([[1.0]], ["a"])
            beside = ContinualNodeClassifier.load(tmp_path)  # a copy of what is still written to
    assert beside.classes_.tolist() == ["a", "b", "c", "d"]
    state = next(tmp_path.glob("snapshot-*/state.safetensors"))
    state.write_bytes(state.read_bytes()[:-8])
    with pytest.raises(Exception, match=r"state\.safetensors"):
        ContinualNodeClassifier.load(tmp_path)
