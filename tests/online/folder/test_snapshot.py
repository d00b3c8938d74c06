"""Snapshots come back as they were or say which file is wrong."""

from __future__ import annotations

import errno
import json

import pytest
import torch

from evergraph.core.errors import DataError, ResourceError
from evergraph.online.folder import snapshot
from evergraph.online.folder.markers import with_check
from evergraph.online.folder.snapshot import read_snapshot, snapshots_in
from stand_in import write_snapshot

STATE = {
    "floats": torch.tensor([[0.1, float("nan")], [-0.0, 3.0]]),
    "doubles": torch.tensor([1 / 3], dtype=torch.float64),
    "numbers": torch.tensor([2**62]),
    "flags": torch.tensor([True, False]),
    "none": torch.zeros(0, 5),
    "scalar": torch.tensor(7),
}
ABOUT = {"names": ["a", "\udc80", 3], "share": 0.1}


def write(folder, seq, about=ABOUT):
    return write_snapshot(folder, seq, STATE, json.dumps(about).encode())


def test_comes_back_bit_for_bit_and_does_not_hang_on_the_file(tmp_path):
    path = write(tmp_path, 12)
    assert path == tmp_path / "snapshot-12"
    assert sorted(p.name for p in path.iterdir()) == [
        "about.json", "manifest.json", "state.safetensors",
    ]  # fmt: skip
    back = read_snapshot(path)
    (path / snapshot.STATE).write_bytes(b"")
    assert (back.seq, back.about) == (12, ABOUT)
    assert back.state.keys() == STATE.keys()
    for name, value in STATE.items():
        assert back.state[name].dtype == value.dtype
        assert back.state[name].shape == value.shape
        assert back.state[name].numpy().tobytes() == value.numpy().tobytes()
    back.state["numbers"] += 1
    assert back.state["numbers"].item() == 2**62 + 1


@pytest.mark.parametrize("name", ["state.safetensors", "about.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["a byte", "cut short", "gone"])
def test_damage_is_named(tmp_path, name, damage):
    path = write(tmp_path, 3) / name
    content = bytearray(path.read_bytes())
    if damage == "a byte":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "cut short":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    with pytest.raises(DataError) as error:
        read_snapshot(path.parent)
    assert "snapshot-3/" in str(error.value)
    if name != "manifest.json":  # which, damaged, may accuse a file that is sound
        assert str(error.value).startswith(f"{path}: ")


def test_another_name_or_format_is_refused_and_the_newest_come_first(tmp_path):
    for seq in (9, 100, 20):
        write(tmp_path, seq)
    for other in ("snapshot-x", ".aside-7"):
        (tmp_path / other).mkdir()
    assert [seq for seq, _ in snapshots_in(tmp_path)] == [100, 20, 9]
    (tmp_path / "snapshot-9").rename(tmp_path / "snapshot-4")
    with pytest.raises(DataError, match=r"snapshot-4/manifest.json: belongs to snapshot-9"):
        read_snapshot(tmp_path / "snapshot-4")
    path = tmp_path / "snapshot-20" / "manifest.json"
    path.write_text(json.dumps(with_check(json.loads(path.read_text()) | {"format": 9})))
    with pytest.raises(DataError, match="is of format 9, this version of evergraph reads 2"):
        read_snapshot(path.parent)


@pytest.mark.parametrize("call", ["sync", "_write"])
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, call):
    write(tmp_path, 1)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(snapshot, call, full)
    with pytest.raises(ResourceError, match="the disk is full"):
        write(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot-1"]


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced, named = [], tmp_path / "snapshot-5"
    monkeypatch.setattr(snapshot, "sync", lambda path: synced.append((path.name, named.exists())))
    write(tmp_path, 5)
    before = [".aside-5", "about.json", "manifest.json", "state.safetensors"]
    assert sorted(name for name, there in synced if not there) == before
    assert synced[-1] == (tmp_path.name, True)
