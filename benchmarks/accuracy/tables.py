"""Plain tables and tables with edges: the live learner beside scikit-learn's usual models.

python benchmarks/accuracy/tables.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pandas as pd
from benchmarks.measure import Options, Table, run
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from evergraph import ContinualNodeClassifier

Edges = list[tuple[int, int]]
TOPICS = (
    "river, lake, boat, fish, water, wave, shore, stream, tide, sail",
    "bank, loan, rate, credit, market, stock, price, money, deposit, fund",
    "bond, anchor, profit, share, trade, ocean, depth, coast, harbour, interest",
)
WORDS = ", ".join(TOPICS).split(", ")


@dataclass(frozen=True)
class Case:
    """A table with what is to be predicted.

    Attributes:
        frame: its columns.
        right: a class or a number per row.
        metric: ``accuracy``, class-balanced, ``AUC`` of two classes, or ``R2``.
    """

    frame: pd.DataFrame
    right: np.ndarray
    metric: str = "accuracy"

    @property
    def is_number(self) -> bool:
        """Whether numbers are predicted."""
        return self.metric == "R2"


def bundled(name: str, metric: str = "accuracy") -> Case:
    """Return one of scikit-learn's tables."""
    found = getattr(datasets, f"load_{name}")(as_frame=True)
    return Case(found.data, found.target.to_numpy(), metric)


def cases() -> dict[str, Case]:
    """Return every table by name."""
    draws = np.random.default_rng(0)
    one, two = draws.normal(size=600), draws.normal(size=(600, 2))
    moons, halves = datasets.make_moons(600, noise=0.2, random_state=0)
    rare = (draws.random(1000) < 0.05).astype(int)
    weak = draws.normal(size=(1000, 4)) + 0.8 * rare[:, None]
    texts, topics = [], draws.integers(0, 3, 600)
    for topic in topics:  # three topics that share most words
        odds = np.ones(len(WORDS))
        odds[topic * 10 : topic * 10 + 10] = 3.0
        texts.append(" ".join(draws.choice(WORDS, 8, p=odds / odds.sum())))
    return {
        "iris": bundled("iris"),
        "wine": bundled("wine"),
        "breast cancer": bundled("breast_cancer"),
        "digits": bundled("digits"),
        "two moons": Case(pd.DataFrame(moons, columns=["a", "b"]), halves),
        "three classes by one column": Case(
            pd.DataFrame({"a": one}), np.digitize(one, [-0.5, 0.5])
        ),
        "two columns": Case(
            pd.DataFrame(two, columns=["a", "b"]), (two[:, 0] * two[:, 1] > 0).astype(int)
        ),
        "a rare class, AUC": Case(pd.DataFrame(weak, columns=list("abcd")), rare, "AUC"),
        "texts": Case(pd.DataFrame({"text": texts}), topics),
        "diabetes, R2": bundled("diabetes", "R2"),
        "one number, R2": Case(
            pd.DataFrame({"a": one}), 3 * one + 0.05 * draws.normal(size=600), "R2"
        ),
    }


def edges_between(case: Case, kind: str) -> Edges:
    """Return informative edges: of near rows, or six a node of which 60 % join equal answers."""
    count, draws = len(case.frame), np.random.default_rng(1)
    if kind == "neighbours":
        rows = StandardScaler().fit_transform(case.frame)
        return list(zip(*kneighbors_graph(rows, 5).nonzero(), strict=True))
    answers = pd.qcut(case.right, 5, labels=False) if case.is_number else case.right
    ends = []
    for node in np.repeat(np.arange(count), 3):
        alike = draws.random() < 0.6
        pool = np.flatnonzero((answers == answers[node]) == alike)
        other = int(draws.choice(pool))
        if other != node:
            ends.append((int(node), other))
    return ends


def live(case: Case, train: np.ndarray, test: np.ndarray, edges: Edges) -> Any:
    """Return what a live learner answers that knows all rows and the answers of some."""
    told = np.full(len(case.right), None, object)
    told[train] = case.right[train].tolist()
    model = ContinualNodeClassifier(targets="numbers" if case.is_number else "class")
    model.partial_fit(list(range(len(told))), case.frame, list(told), edges)
    if case.metric == "AUC":
        return np.asarray(model.predict_proba(test.tolist()))[:, list(model.classes_).index(1)]
    return np.asarray(model.predict(test.tolist()))


def peer(make: Callable[[bool], Any], case: Case, train: np.ndarray, test: np.ndarray) -> Any:
    """Return what a model of scikit-learn answers that was fitted on some rows."""
    rows = case.frame
    if "text" in rows:
        rows = pd.DataFrame(TfidfVectorizer().fit_transform(rows["text"]).toarray())
    model = make(case.is_number).fit(rows.iloc[train], case.right[train])
    if case.metric != "AUC":
        return model.predict(rows.iloc[test])
    if hasattr(model, "decision_function"):
        return model.decision_function(rows.iloc[test])
    return model.predict_proba(rows.iloc[test])[:, 1]


def linear(number: bool) -> Any:
    """Return a linear model with its penalty chosen, classes balanced."""
    fitted = (
        RidgeCV(np.logspace(-3, 3, 13))
        if number
        else LogisticRegression(class_weight="balanced", max_iter=2000)
    )
    return make_pipeline(StandardScaler(), fitted)


def vectors(number: bool) -> Any:
    """Return a support vector machine with an RBF kernel."""
    fitted = SVR() if number else SVC(class_weight="balanced")
    return make_pipeline(StandardScaler(), fitted)


def boosting(number: bool) -> Any:
    """Return histogram boosting."""
    if number:
        return HistGradientBoostingRegressor(random_state=0)
    return HistGradientBoostingClassifier(class_weight="balanced", random_state=0)


JOINED = ("iris", "digits", "two moons", "diabetes, R2")
PEERS = {"linear model": linear, "RBF SVM": vectors, "boosting": boosting}
METRICS = {"accuracy": balanced_accuracy_score, "AUC": roc_auc_score, "R2": r2_score}


def measured(case: Case, answer: Callable[..., Any], folds: int) -> float:
    """Return the metric in percent, the mean over folds."""
    split = (KFold if case.is_number else StratifiedKFold)(folds, shuffle=True, random_state=0)
    found = [
        METRICS[case.metric](case.right[test], answer(case, train, test))
        for train, test in split.split(case.frame, case.right)
    ]
    return 100 * float(mean(found))


def row(
    name: str, case: Case, folds: int, peers: Sequence[str], kind: str | None = None
) -> tuple[str, ...]:
    """Return a row of the table: the live learner, with edges of a kind, then its peers."""
    edges = [] if kind is None else edges_between(case, kind)
    return (name, f"{measured(case, partial(live, edges=edges), folds):.1f}", *peers)


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    every, folds = cases(), 2 if options.quick else 5
    names = ["iris", "one number, R2"] if options.quick else list(every)
    joined = [
        (f"{name}, {kind}", name, kind)
        for name in (names[:1] if options.quick else JOINED)
        for kind in ("neighbours", "homophily 0.6")
    ]
    said = f"{folds} folds; class-balanced accuracy unless the row says otherwise, in percent."
    header = ("", "live learner", *PEERS)
    peers = {  # which see no edges
        name: [
            f"{measured(every[name], partial(peer, make), folds):.1f}" for make in PEERS.values()
        ]
        for name in names
    }
    return [
        Table(
            "Tables without edges",
            header,
            [row(n, every[n], folds, peers[n]) for n in names],
            (said,),
        ),
        Table(
            "The same with informative edges, which the others do not see",
            header,
            [row(title, every[name], folds, peers[name], kind) for title, name, kind in joined],
            (
                said,
                "All rows are known to the live learner, with the answers of the training rows.",
            ),
        ),
    ]


if __name__ == "__main__":
    run("tables", "Tables", tables)
