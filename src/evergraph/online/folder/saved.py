"""A learner in memory, written to a folder of its own."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from evergraph.core.errors import ConfigurationError
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.markers import store_columns, store_parameters
from evergraph.online.folder.recovery import make_folder
from evergraph.online.folder.snapshot import publish, write_aside
from evergraph.online.learner import OnlineLearner
from evergraph.tables.scheme import Scheme


def save_learner(path: Path, learner: OnlineLearner, columns: Scheme | None) -> None:
    """Write a learner to a new folder, as if it had been there all the time and was purged."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigurationError(f"{path} must be a new or empty folder to save a model in")
    make_folder(path)
    with learner.writing:
        seq, about = learner.status().seq, learner.about() | {"threads": learner.threads}
        store_columns(path, columns)
        if seq:
            publish(write_aside(path, seq, learner.pieces()), seq, json.dumps(about).encode())
    with closing(Journal(path / JOURNAL_FILE)) as journal:
        if seq:
            journal.begin_anew(seq, keys=True)
    # Last: a folder with parameters is whole.
    store_parameters(path, learner.parameters)
