"""Alarms of a learner: told once, kept by its folder, the same after a recovery."""

from __future__ import annotations

import logging

import pytest
import torch

from evergraph.online import ContinualNodeClassifier, Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner


def rows(number: int) -> dict:
    """Two hundred nodes of two classes, told apart by one feature; from delta 10 on swapped."""
    classes = torch.arange(200) % 2
    labels = ["xy"[c] for c in ((classes + (number >= 10)) % 2).tolist()]
    return {
        "nodes": [f"{number}-{i}" for i in range(200)],
        "features": torch.eye(2)[classes],
        "labels": labels,
    }


def test_the_callback_is_called_once_an_alarm():
    told = []
    model = ContinualNodeClassifier(head="analytic", width=16, on_alarm=told.append)
    for number in range(12):
        model.partial_fit(**rows(number), key=str(number))
        model.partial_fit(**rows(number), key=str(number))
    assert [(alarm.kind, alarm.seq) for alarm in told] == [("accuracy", 11)]
    assert model.alarms() == tuple(told)
    assert "is 0.0 %: expected about 100.0 %" in told[0].message


def test_a_callback_that_fails_is_no_failure_of_the_delta(caplog):
    def fail(alarm):
        raise RuntimeError("no pager")

    model = ContinualNodeClassifier(head="analytic", width=16, on_alarm=fail)
    for number in range(11):
        model.partial_fit(**rows(number))
    assert (model.status().seq, len(model.alarms())) == (11, 1)
    assert "no pager" in caplog.text


def make() -> OnlineLearner:
    return OnlineLearner(head=AnalyticHead(width=16))


@pytest.mark.parametrize("compact_at", [(), (5,), (11,)])
def test_a_folder_logs_alarms_once_and_never_again(tmp_path, caplog, compact_at):
    caplog.set_level(logging.WARNING)
    with LearnerFolder.open(tmp_path, make=make) as folder:
        for number in range(11):
            folder.submit(Delta(**rows(number)))
            if number + 1 in compact_at:
                folder.compact()
        kept, state = folder.learner.alarms(), folder.learner.state()
        state = {name: value.clone() for name, value in state.items()}
    assert [r.message for r in caplog.records] == [f"alarm (accuracy): {kept[0].message}"]
    for readonly in (False, True):
        with LearnerFolder.open(tmp_path, make=make, readonly=readonly) as folder:
            assert folder.learner.alarms() == kept
            again = folder.learner.state()
            assert state.keys() == again.keys()
            assert all(torch.equal(value, again[name]) for name, value in state.items())
    assert len(caplog.records) == 1


def test_a_state_from_before_alarms_is_taken():
    old, new = make(), make()
    old.apply(Delta(**rows(0)))
    kept = {name: v.clone() for name, v in old.state().items() if not name.startswith("alarms.")}
    new.restore(kept, old.about())
    assert new.alarms() == ()
    new.apply(Delta(**rows(1)))
    assert new.status().seq == 2
