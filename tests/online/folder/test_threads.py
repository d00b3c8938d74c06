"""The same bits, however many threads the process would use."""

import logging

import pytest
import torch

from evergraph.core.device import exactly_threads
from evergraph.core.errors import ConfigurationError
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from growth import bits, growth


def learned(path, threads):
    """Return the bits of a learner that a process with so many threads has taught."""
    with exactly_threads(threads), LearnerFolder.open(path, make=OnlineLearner) as folder:
        for delta in growth(0, 2, each=300, dims=32):
            folder.submit(delta)
        assert torch.get_num_threads() == threads
        return bits(folder.learner)


def test_what_a_folder_learns_does_not_depend_on_the_threads_of_its_process(tmp_path):
    one, two = learned(tmp_path / "one", 1), learned(tmp_path / "two", 2)
    assert one == two
    with exactly_threads(2), LearnerFolder.open(tmp_path / "one", make=OnlineLearner) as again:
        assert bits(again.learner) == one  # recovered from the journal


def test_other_threads_than_those_of_a_snapshot_are_said(tmp_path, caplog):
    with LearnerFolder.open(tmp_path, make=OnlineLearner) as folder:
        folder.submit(Delta(nodes=["a"], features=torch.ones(1, 2), labels=["x"]))
        folder.compact()
    with caplog.at_level(logging.WARNING), LearnerFolder.open(tmp_path, make=OnlineLearner):
        assert not caplog.records
    with LearnerFolder.open(tmp_path, make=OnlineLearner, threads=2) as folder:
        assert folder.learner.predict(["a"]) == ["x"]
    assert "learned with 1 threads and this process uses 2" in caplog.text
    with pytest.raises(ConfigurationError, match="threads"):
        LearnerFolder.open(tmp_path, make=OnlineLearner, threads=0)
