"""``evergraph skip``: from a folder that cannot be opened to one that can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from evergraph.cli.app import app
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online.delta import Delta
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.learner_folder import LearnerFolder


def called(*words: str) -> str:
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_delta_is_left_out_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "learner"
    with LearnerFolder.of(path, {"head": {"name": "analytic", "width": 8}}) as folder:
        for number, name in enumerate("abc"):
            delta = Delta(nodes=(name,), features=torch.eye(3)[[number]], labels=("x",), key=name)
            folder.submit(delta)
    assert called("skip", str(path)) == "nothing was set aside\n"
    journal = Journal(path / JOURNAL_FILE)
    journal._connection.execute("UPDATE deltas SET bytes = x'00' WHERE seq = 2")
    journal.close()
    with pytest.raises(DataError, match="delta 2 cannot be read"):
        LearnerFolder.of(path)
    said = called("skip", str(path), "--delta", "2", "--why", "a bad sector")
    assert "a bad sector" in said
    (kept,) = json.loads(called("skip", str(path), "--json"))["set_aside"]
    assert (kept["seq"], kept["key"], kept["why"], kept["size"]) == (2, "b", "a bad sector", 1)
    with LearnerFolder.of(path) as folder:
        assert (folder.seq, folder.learner.every_id()) == (3, ["a", "c"])


def test_a_reason_and_a_number_are_needed(tmp_path: Path) -> None:
    for words, sentence in (
        (["--delta", "2"], "--delta needs --why"),
        (["--why", "no"], "needs --delta"),
    ):
        result = CliRunner().invoke(app, ["skip", str(tmp_path), *words])
        assert isinstance(result.exception, ConfigurationError | SystemExit)
        assert sentence in result.output + str(result.exception)
