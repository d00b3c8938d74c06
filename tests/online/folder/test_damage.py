"""Files that were damaged, taken away or left over: mended where they can be, else refused."""

from __future__ import annotations

import json
import logging

import pytest

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
)
from evergraph.online.folder.journal import JOURNAL_FILE as JOURNAL
from evergraph.online.folder.journal import Journal
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, FORMAT_FILE, with_check
from stand_in import bits, filled, opened, twin


def test_the_newest_snapshot_damaged_means_the_one_before(tmp_path, caplog):
    filled(tmp_path, 9, compact_at=(2, 5, 8))
    path = tmp_path / "snapshot-8" / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING), opened(tmp_path) as folder:
        assert f"{path}: its contents have changed since it was written" in caplog.text
        assert folder.status().snapshot == 5
        assert bits(folder.learner) == twin(9)
        assert folder.compact() == 9
    assert sorted(p.name for p in tmp_path.glob("snapshot-*")) == ["snapshot-5", "snapshot-9"]
    with opened(tmp_path) as folder:
        assert folder.status().snapshot == 9
        assert bits(folder.learner) == twin(9)


def test_a_damaged_snapshot_is_written_again_at_the_same_delta(tmp_path):
    filled(tmp_path, 5, compact_at=(2, 5))
    (tmp_path / "snapshot-5" / "manifest.json").write_text("{")
    with opened(tmp_path) as folder:
        assert folder.compact() == 5
    with opened(tmp_path) as folder:
        assert folder.status().snapshot == 5
        assert bits(folder.learner) == twin(5)


def test_no_whole_snapshot_and_a_journal_that_begins_later_is_refused(tmp_path):
    filled(tmp_path, 6, compact_at=(2, 5))
    for number in (2, 5):
        (tmp_path / f"snapshot-{number}" / "about.json").unlink()
    with pytest.raises(DataError, match=r"no whole snapshot \(.*snapshot-5/about.json.*delta 3:"):
        opened(tmp_path)


def test_no_whole_snapshot_but_a_whole_journal_is_enough(tmp_path):
    filled(tmp_path, 6, compact_at=(4,))
    (tmp_path / "snapshot-4" / "about.json").unlink()
    with opened(tmp_path) as folder:
        assert bits(folder.learner) == twin(6)


def edit_journal(path, command: str, *values) -> None:
    journal = Journal(path / JOURNAL)
    journal._connection.execute(command, values)
    journal.close()


def test_a_gap_in_the_journal_is_refused(tmp_path):
    filled(tmp_path, 5)
    edit_journal(tmp_path, "DELETE FROM deltas WHERE seq = 3")
    with pytest.raises(DataError, match=r"journal.sqlite: delta 3 is missing, the next one is 4"):
        opened(tmp_path)
    with pytest.raises(DataError):  # not LockedError: a refusal gives the lock back
        opened(tmp_path)


def test_a_changed_row_is_refused(tmp_path):
    filled(tmp_path, 5)
    edit_journal(
        tmp_path, "UPDATE deltas SET bytes = "
        "CAST(substr(bytes, 1, length(bytes) - 1) || x'00' AS BLOB) WHERE seq = 4",
    )  # fmt: skip
    with pytest.raises(DataError, match=r"delta 4 cannot be read: a delta's checksum is wrong"):
        opened(tmp_path)


@pytest.mark.parametrize("compact_at", [(), (2, 4)])
def test_a_journal_that_lost_its_end_is_refused(tmp_path, compact_at):
    filled(tmp_path, 5, compact_at=compact_at)
    edit_journal(tmp_path, "DELETE FROM deltas WHERE seq = 5")
    with pytest.raises(DataError, match=r"ends with delta 4, but 5 were acknowledged"):
        opened(tmp_path)


def test_a_journal_older_than_the_snapshot_is_refused(tmp_path):
    filled(tmp_path, 5, compact_at=(4,))
    edit_journal(tmp_path, "DELETE FROM deltas WHERE seq > 2")
    (tmp_path / ACKNOWLEDGED_FILE).unlink()
    with pytest.raises(DataError, match=r"ends with delta 2, but 4 were acknowledged"):
        opened(tmp_path)


def test_a_missing_journal_is_refused(tmp_path):
    filled(tmp_path, 2)
    (tmp_path / JOURNAL).unlink()
    with pytest.raises(DataError, match=r"journal.sqlite: is missing"):
        opened(tmp_path)


def test_a_missing_format_file_is_refused(tmp_path):
    filled(tmp_path, 2)
    (tmp_path / FORMAT_FILE).unlink()
    with pytest.raises(DataError, match=r"evergraph-learner.json: is missing, but the journal"):
        opened(tmp_path)


def test_an_unknown_format_says_what_to_do(tmp_path):
    filled(tmp_path, 1)
    content = json.loads((tmp_path / FORMAT_FILE).read_text())
    content = with_check(content | {"format": 99, "evergraph": "9.1"})
    (tmp_path / FORMAT_FILE).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"is of format 99, .* install evergraph 9.1 or newer"):
        opened(tmp_path)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigurationError, match=r"but it holds 'thesis.tex'"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
