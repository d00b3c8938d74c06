"""Plain tables and tables with edges: the live learner beside scikit-learn's usual models.

python benchmarks/accuracy/tables.py [--quick] [--out benchmarks/results] [--threads N]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
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
METRICS = {"accuracy": balanced_accuracy_score, "AUC": roc_auc_score, "R2": r2_score}
SHUFFLES = 5
JOINED = ("iris", "digits", "two moons", "diabetes, R2")
TOPICS = (
    "river, lake, boat, fish, water, wave, shore, stream, tide, sail",
    "bank, loan, rate, credit, market, stock, price, money, deposit, fund",
    "bond, anchor, profit, share, trade, ocean, depth, coast, harbour, interest",
)


@dataclass(frozen=True)
class Case:
    """A table, the class or number to predict of each row, and how answers are judged."""

    frame: pd.DataFrame
    right: np.ndarray
    metric: str = "accuracy"  # a name in ``METRICS``


def cases() -> dict[str, Case]:
    """Return every table by name."""
    draws = np.random.default_rng(0)
    found = {}
    for name, metric in (
        ("iris", "accuracy"),
        ("wine", "accuracy"),
        ("breast_cancer", "accuracy"),
        ("digits", "accuracy"),
        ("diabetes", "R2"),
    ):
        bundled = getattr(datasets, f"load_{name}")(as_frame=True)
        title = name.replace("_", " ") + (", R2" if metric == "R2" else "")
        found[title] = Case(bundled.data, bundled.target.to_numpy(), metric)
    moons, halves = datasets.make_moons(600, noise=0.2, random_state=0)
    one, two = draws.normal(size=600), draws.normal(size=(600, 2))
    rare = (draws.random(1000) < 0.05).astype(int)
    weak = draws.normal(size=(1000, 4)) + 0.8 * rare[:, None]
    words, topics = ", ".join(TOPICS).split(", "), draws.integers(0, 3, 600)
    odds = (np.arange(len(words)) // 10 == topics[:, None]) * 2.0 + 1.0  # most words are shared
    texts = [" ".join(draws.choice(words, 8, p=row / row.sum())) for row in odds]
    line = 3 * one + 0.05 * draws.normal(size=600)
    return found | {
        "two moons": Case(pd.DataFrame(moons, columns=["a", "b"]), halves),
        "three classes by one column": Case(
            pd.DataFrame({"a": one}), np.digitize(one, [-0.5, 0.5])
        ),
        "two columns": Case(pd.DataFrame(two, columns=["a", "b"]), (two.prod(1) > 0).astype(int)),
        "a rare class, AUC": Case(pd.DataFrame(weak, columns=list("abcd")), rare, "AUC"),
        "texts": Case(pd.DataFrame({"text": texts}), topics),
        "one number, R2": Case(pd.DataFrame({"a": one}), line, "R2"),
    }


def edges_between(case: Case, kind: str) -> Edges:
    """Return informative edges: of near rows, or six a node of which 60 % join equal answers."""
    count, draws = len(case.frame), np.random.default_rng(1)
    if kind == "neighbours":
        rows = StandardScaler().fit_transform(case.frame)
        return list(zip(*kneighbors_graph(rows, 5).nonzero(), strict=True))
    answers = pd.qcut(case.right, 5, labels=False) if case.metric == "R2" else case.right
    ends = []
    for node in np.repeat(np.arange(count), 3):
        alike = draws.random() < 0.6
        other = draws.choice(np.flatnonzero((answers == answers[node]) == alike))
        ends += [(int(node), int(other))] if other != node else []
    return ends


def live(case: Case, train: np.ndarray, test: np.ndarray, edges: Edges) -> Any:
    """Return what a live learner answers that knows all rows and the answers of some."""
    told = np.full(len(case.right), None, object)
    told[train] = case.right[train].tolist()
    model = ContinualNodeClassifier(targets="numbers" if case.metric == "R2" else "class")
    model.partial_fit(list(range(len(told))), case.frame, list(told), edges)
    if case.metric == "AUC":
        return np.asarray(model.predict_proba(test.tolist()))[:, list(model.classes_).index(1)]
    return np.asarray(model.predict(test.tolist()))


def peer(peers: tuple[Any, Any], case: Case, train: np.ndarray, test: np.ndarray) -> Any:
    """Return what a model of scikit-learn answers, for classes or for numbers."""
    rows = case.frame
    if "text" in rows:
        rows = pd.DataFrame(TfidfVectorizer().fit_transform(rows["text"]).toarray())
    model = make_pipeline(StandardScaler(), peers[case.metric == "R2"])
    model.fit(rows.iloc[train], case.right[train])
    if case.metric != "AUC":
        return model.predict(rows.iloc[test])
    if hasattr(model, "decision_function"):
        return model.decision_function(rows.iloc[test])
    return model.predict_proba(rows.iloc[test])[:, 1]


PEERS = {
    "linear model": (
        LogisticRegression(class_weight="balanced", max_iter=2000),
        RidgeCV(np.logspace(-3, 3, 13)),
    ),
    "RBF SVM": (SVC(class_weight="balanced"), SVR()),
    "boosting": (
        HistGradientBoostingClassifier(class_weight="balanced", random_state=0),
        HistGradientBoostingRegressor(random_state=0),
    ),
}


def measured(case: Case, answer: Callable[..., Any], folds: int) -> list[float]:
    """Return the metric in percent, the mean over the folds of each shuffle.

    150 rows in a single shuffle say little: one row more or less is 0.7 points.
    """
    kind, found = KFold if case.metric == "R2" else StratifiedKFold, []
    for shuffle in range(SHUFFLES):
        split = kind(folds, shuffle=True, random_state=shuffle).split(case.frame, case.right)
        scores = [
            METRICS[case.metric](case.right[test], answer(case, train, test))
            for train, test in split
        ]
        found.append(100 * mean(scores))
    return found


def shown(found: list[list[float]]) -> tuple[str, ...]:
    """Return the mean of each model, then by how much the first leads the best of the others.

    The standard error is of the differences in each shuffle, which all models share.
    """
    own, best = found[0], max(found[1:], key=mean)
    leads = [mine - other for mine, other in zip(own, best, strict=True)]
    error = stdev(leads) / len(leads) ** 0.5
    return (*(f"{mean(scores):.1f}" for scores in found), f"{mean(leads):+.1f} ± {error:.1f}")


def tables(options: Options) -> list[Table]:
    """Measure everything."""
    every, folds = cases(), 2 if options.quick else 5
    names = ["iris", "one number, R2"] if options.quick else list(every)
    peers = {  # which see no edges
        name: [measured(every[name], partial(peer, pair), folds) for pair in PEERS.values()]
        for name in names
    }

    def row(name: str, kind: str | None = None) -> tuple[str, ...]:
        edges = [] if kind is None else edges_between(every[name], kind)
        title = name if kind is None else f"{name}, {kind}"
        own = measured(every[name], partial(live, edges=edges), folds)
        return (title, *shown([own, *peers[name]]))

    header = ("", "live learner", *PEERS, "lead over the best other")
    said = (
        f"Mean of {SHUFFLES} shuffles of {folds} folds; class-balanced accuracy unless the row says "
        "otherwise, in percent. The lead has its standard error over the shuffles, in which all "
        "models see the same folds; other rows of the same kind would vary more."
    )
    joined = [name for name in JOINED if name in names]
    kinds = ("neighbours", "homophily 0.6")
    known = "All rows are known to the live learner, with the answers of the training rows."
    return [
        Table("Tables without edges", header, [row(name) for name in names], (said,)),
        Table(
            "The same with informative edges, which the others do not see",
            header,
            [row(name, kind) for name in joined for kind in kinds],
            (said, known),
        ),
    ]


if __name__ == "__main__":
    run("tables", "Tables", tables)
