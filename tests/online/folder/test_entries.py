"""What one folder hands to another that follows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evergraph.core.errors import ConfigurationError, DataError, DroppedError
from evergraph.online.delta import Delta
from evergraph.online.folder.entries import (
    JournalEntry,
    check_entries,
    entries_from_bytes,
    entries_to_bytes,
)
from evergraph.online.folder.following import begin_with_snapshot
from stand_in import bits, delta, opened, twin_of


def numbered(*seqs: int) -> list[Delta]:
    return [delta(seq, key=f"k{seq}") for seq in seqs]


def test_a_follower_has_the_bits_of_what_it_follows(tmp_path):
    with opened(tmp_path / "one") as one, opened(tmp_path / "other") as other:
        one.submit_many(numbered(1, 2, 3))
        one.submit_many(numbered(4))
        one.submit_many(numbered(5, 6))
        entries = one.entries_after(0)
        assert [(e.seq, e.batch, e.key, e.last) for e in entries] == [
            (1, 1, "k1", False),
            (2, 1, "k2", False),
            (3, 1, "k3", True),
            (4, 4, "k4", True),
            (5, 5, "k5", False),
            (6, 5, "k6", True),
        ]
        assert other.take_entries(entries_from_bytes(entries_to_bytes(entries[:3]))) == 3
        assert other.take_entries(entries[3:]) == 3
        assert one.entries_after(6) == []
        assert bits(other.learner) == bits(one.learner) == twin_of([[1, 2, 3], [4], [5, 6]])
        assert other.submit(delta(2, key="k2")).seq == 2  # keys came with them
    with opened(tmp_path / "other") as other:
        assert bits(other.learner) == twin_of([[1, 2, 3], [4], [5, 6]])


def test_as_many_whole_batches_as_fit(tmp_path):
    with opened(tmp_path) as folder:
        for seqs in ((1, 2), (3,), (4, 5)):
            folder.submit_many(numbered(*seqs))
        size = len(folder.entries_after(0)[0].data)
        for most, last in ((1, 2), (2 * size, 2), (3 * size, 3), (5 * size - 1, 3), (5 * size, 5)):
            assert folder.entries_after(0, most_bytes=most)[-1].seq == last
        with pytest.raises(DataError, match="delta 2 belongs to batch 1, so nobody can go on"):
            folder.entries_after(1)
        with pytest.raises(DataError, match="ends with delta 5, so nothing follows delta 6"):
            folder.entries_after(6)


REFUSED = {
    "delta 2, but delta 3 is next: some are missing": lambda e: e[1:],
    "delta 2, but delta 1 is next: it is known already": lambda e: [replace(e[0], seq=1)],
    "batch 2 ends with delta 2": lambda e: e[:1],
    "delta 3 belongs to batch 3 instead of 2": lambda e: [e[0], replace(e[1], batch=3)],
    "delta 2 belongs to batch 1 instead of 2": lambda e: [replace(e[0], batch=1), e[1]],
    "checksum is wrong": lambda e: [e[0], replace(e[1], data=e[1].data[:-1] + b"!")],
    "delta 3 has the key 'k3', not 'k4'": lambda e: [e[0], replace(e[1], key="k4")],
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_go_on_is_refused_and_changes_nothing(tmp_path, sentence):
    with opened(tmp_path / "one") as one, opened(tmp_path / "other") as other:
        one.submit(delta(1))
        other.take_entries(one.entries_after(0))
        one.submit_many(numbered(2, 3))
        entries = one.entries_after(1)
        with pytest.raises(DataError, match=sentence):
            other.take_entries(REFUSED[sentence](entries))
        assert (other.seq, bits(other.learner)) == (1, twin_of([[1]]))
        assert other.take_entries(entries) == 2
        assert bits(other.learner) == twin_of([[1], [2, 3]])


def test_bytes_that_changed_on_their_way_are_refused():
    entry = JournalEntry(7, 5, "\udc80k", b"delta")
    sent = entries_to_bytes([entry, replace(entry, seq=8, key=None)])
    assert entries_from_bytes(sent) == [entry, replace(entry, seq=8, key=None)]
    for place in range(len(sent)):
        damaged = bytearray(sent)
        damaged[place] ^= 1
        with pytest.raises(DataError, match=r"checksum of entry|no whole entry"):
            entries_from_bytes(bytes(damaged))
    with pytest.raises(DataError, match=r"checksum of entry 2|no whole entry"):
        entries_from_bytes(sent[:-1])
    check_entries([], 3)


def test_a_follower_begins_with_a_snapshot_where_deltas_are_dropped(tmp_path):
    with opened(tmp_path / "one") as one:
        assert one.newest_snapshot() is None
        for seqs in ((1, 2), (3,), (4, 5), (6, 7)):
            one.submit_many(numbered(*seqs))
            if seqs[-1] in (3, 5):
                one.compact()
        with pytest.raises(DroppedError, match="begins with delta 4, so what follows delta 0 is"):
            one.entries_after(0)
        assert one.newest_snapshot() == tmp_path / "one" / "snapshot-5"
        other = tmp_path / "other"
        assert begin_with_snapshot(other, one.newest_snapshot(), one.learner.parameters) == 5
        with pytest.raises(ConfigurationError, match="must be empty or not there"):
            begin_with_snapshot(other, one.newest_snapshot(), one.learner.parameters)
        for _ in range(2):  # also when it is opened again before anything came
            opened(other).close()
        with opened(other) as folder:
            assert (folder.seq, folder.entries_after(5)) == (5, [])
            assert folder.take_entries(one.entries_after(5)) == 2
        with opened(other) as folder:
            assert bits(folder.learner) == bits(one.learner)
    (other / "snapshot-5" / "about.json").write_text("{}")
    with pytest.raises(DataError, match="there is no whole snapshot"):
        opened(other)


def test_a_reader_hands_entries_on_too(tmp_path):
    with opened(tmp_path) as folder, opened(tmp_path, readonly=True) as reader:
        folder.submit_many(numbered(1, 2))
        assert [entry.seq for entry in reader.entries_after(0)] == [1, 2]
        assert reader.seq == 0
        assert reader.refresh() == 2
        assert bits(reader.learner) == twin_of([[1, 2]])
        with pytest.raises(ConfigurationError, match="readonly=True"):
            reader.take_entries([])
