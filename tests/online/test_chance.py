"""Said when nothing predicts labels better than chance, and not when something does."""

import logging

import numpy as np
import pytest

from evergraph import ContinualNodeClassifier
from growth import restored

NODES = 120


def told(kind: str, *, learnable: bool) -> tuple[np.ndarray, list]:
    draws = np.random.default_rng(3)
    rows = draws.normal(size=(NODES, 3))
    tells = rows if learnable else draws.normal(size=rows.shape)
    if kind == "class":
        return rows, ["high" if row[0] > 0 else "low" for row in tells]
    if kind == "labels":
        return rows, [
            [name for name, value in zip("abc", row, strict=True) if value > 0] for row in tells
        ]
    return rows, [float(row[0]) for row in tells]


@pytest.mark.parametrize("kind", ["class", "labels", "numbers"])
@pytest.mark.parametrize("learnable", [True, False])
def test_it_is_said_once_where_nothing_is_better_than_chance(kind, learnable, caplog):
    rows, labels = told(kind, learnable=learnable)
    model = ContinualNodeClassifier(targets=kind)
    with caplog.at_level(logging.WARNING):
        model.partial_fit(list(range(NODES)), rows, labels)
        model.partial_fit([NODES], rows[:1], labels[:1])
    assert caplog.text.count("better than by chance") == (0 if learnable else 1)
    assert model.status().better_than_chance is learnable


def test_a_rare_class_that_no_node_is_given_may_be_known_better_than_by_chance():
    draws = np.random.default_rng(0)
    rare = draws.random(400) < 0.05
    rows = draws.normal(size=(400, 4)) + 0.8 * rare[:, None]
    model = ContinualNodeClassifier(objective="plain")
    model.partial_fit(list(range(400)), rows, rare.tolist())
    assert model.status().better_than_chance
    assert restored(model.learner_).status().better_than_chance


def test_few_labels_say_nothing_about_chance(caplog):
    rows, labels = told("class", learnable=False)
    model = ContinualNodeClassifier().partial_fit(list(range(20)), rows[:20], labels[:20])
    assert model.status().better_than_chance is None
    assert "chance" not in caplog.text


def test_it_is_said_by_ingest_and_status(call, tmp_path):
    rows, labels = told("class", learnable=False)
    told_of = zip(range(NODES), rows[:, 0], labels, strict=True)
    lines = [",".join(map(str, each)) for each in told_of]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,size,label", *lines]))
    _, err = call("ingest", "learner", "--nodes", str(tmp_path / "nodes.csv"))
    assert "nodes.csv: labelled nodes" in err.replace("\n", " ")
    out, _ = call("status", "learner")
    assert "not predicted better than by" in out
