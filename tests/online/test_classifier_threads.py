"""Threads beside the classifier, and a fork of its process."""

import signal
import time
from threading import Event, Thread

import numpy as np
import pandas as pd
import pytest

from evergraph.core.resources import exactly_threads
from evergraph.online.classifier import ContinualNodeClassifier
from evergraph.online.estimator import InMemoryLearner
from forked import in_a_child

X = np.eye(4, dtype=np.float32)


def small(**parameters) -> ContinualNodeClassifier:
    return ContinualNodeClassifier(head="analytic", width=48, **parameters)


def started(**parameters) -> ContinualNodeClassifier:
    model = small(**parameters)
    return model.partial_fit(
        ["a", "b", "c", "d"], X, ["x", "x", "y", None], [("a", "b"), ("c", "d")]
    )


def test_who_reads_beside_partial_fit_is_told_of_one_state(monkeypatch):
    model, told = started(), []
    before, knowledge = model.predict_proba(["a", "d"]), model.learner_.knowledge
    update_head = knowledge.update_head

    def both():
        return model.embed(["a"]), model.predict_proba(["a", "d"])

    def read_and_update(**given):
        # Graph, embeddings, labels and codes have changed by now.
        reader = Thread(target=lambda: told.append(both()))
        reader.start()
        reader.join(0.3)
        return update_head(**given)

    monkeypatch.setattr(knowledge, "update_head", read_and_update)
    model.partial_fit(["e"], X[:1], ["z"], [("e", "a")])
    while not told:
        time.sleep(0.01)
    assert all(map(np.array_equal, told[0], both()))
    assert told[0][1].shape != before.shape


@pytest.mark.parametrize("first", [False, True])
def test_threads_may_bring_nodes_at_the_same_time(first):
    model, failed = small() if first else started(), []

    def bring(thread):
        try:
            for k in range(4):
                model.partial_fit([f"{thread}-{k}"], X[thread : thread + 1], [str(thread)])
                model.partial_fit([f"once-{k}"], X[:1], key=f"once-{k}")
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=bring, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert model.status().nodes == (0 if first else 4) + 4 * 4 + 4
    assert model.predict([f"{thread}-3" for thread in range(4)]).tolist() == list("0123")


def test_the_first_of_two_threads_decides_how_columns_are_read(monkeypatch):
    model, frames = (
        small(),
        [pd.DataFrame({"age": [1.0, 3.0]}), pd.DataFrame({"age": [10.0, 50.0]})],
    )
    submit, later = InMemoryLearner.submit, []

    def submit_beside_another(kept, delta):
        if not later:
            later.append(Thread(target=model.partial_fit, args=(["c", "d"], frames[1], ["x", "y"])))
            later[0].start()
            later[0].join(0.3)
        return submit(kept, delta)

    monkeypatch.setattr(InMemoryLearner, "submit", submit_beside_another)
    model.partial_fit(["a", "b"], frames[0], ["x", "y"])
    later[0].join()
    one_by_one = small().partial_fit(["a", "b"], frames[0], ["x", "y"])
    one_by_one.partial_fit(["c", "d"], frames[1], ["x", "y"])
    expected = one_by_one.embed(["a", "b", "c", "d"])
    np.testing.assert_array_equal(model.embed(["a", "b", "c", "d"]), expected)


def test_a_forked_child_answers_or_says_why_not():
    x = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    nodes, held, done = list(range(2000)), Event(), Event()

    def ask_and_learn():
        signal.alarm(60)  # ends a child that waits for ever
        assert model.predict(nodes).tolist() == expected
        assert model.partial_fit(["new"], x[:1], ["x"]).status().nodes == 2001

    with exactly_threads(2):  # threads of torch, which a child does not have
        model = small().partial_fit(nodes, x, ["x", "y"] * 1000)
        expected = model.predict(nodes).tolist()
        with model.learner_._lock:  # as a reader in another thread holds it
            assert in_a_child(ask_and_learn).code == 0

    def change():
        with model.learner_.changing():
            held.set()
            done.wait()

    thread = Thread(target=change)
    thread.start()
    held.wait()
    ended = in_a_child(ask_and_learn)
    done.set()
    thread.join()
    assert "StoppedError: this process was forked while a thread of its parent was" in ended.err
    assert model.predict(nodes).tolist() == expected
