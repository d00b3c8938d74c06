"""Downloads from a server that does wrong what servers do wrong, and checksums."""

import resource
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import (
    DataError,
    DownloadError,
    EvergraphError,
    ResourceError,
    WrongFileError,
)
from evergraph.core.safe_files import written_aside
from evergraph.datasets import fetching
from evergraph.datasets.fetching import SUMS, download, read_sums, record, recorded, verify
from evergraph.graphs.graph_folder import checksum
from faulty_server import FAULTS, FaultyServer, faulty

BODY = bytes(range(256)) * 8


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # pooch waits between tries


def fetched(server: FaultyServer, folder: Path) -> bytes:
    path = folder / "a.bin"
    download([f"{server.url}/a.bin"], path)
    return path.read_bytes()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_got_over(tmp_path, fault):
    with faulty({"/a.bin": BODY}, "cut", fault) as server:
        assert fetched(server, tmp_path) == server.content("/a.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_tries_have_an_end_and_nothing_is_left(tmp_path):
    with faulty({"/a.bin": BODY}, "cut", *["503"] * 3) as server:
        with pytest.raises(
            DownloadError, match=r"a\.bin could not be downloaded \(http.*: 503 Ser"
        ):
            fetched(server, tmp_path)
        assert len(server.requests) == 4
        assert list(tmp_path.iterdir()) == []
        assert fetched(server, tmp_path) == BODY


def test_the_next_mirror_is_asked_and_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".a.bin.partial").mkdir()
    (tmp_path / ".a.bin.partial" / "tmp123").write_bytes(b"half")
    with faulty({"/a.bin": BODY}, *["404"] * 4) as server:
        urls = [f"{server.url}/a.bin", f"{server.url}/moved/a.bin"]
        download(urls, tmp_path / "a.bin")
        assert server.requests[-1] == ("/moved/a.bin", None)
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == BODY
    with pytest.raises(DownloadError, match="Connection refused") as caught:  # nothing answers
        fetched(server, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_one_sentence(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with faulty({"/a.bin": BODY}) as server:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
        try:
            with pytest.raises(ResourceError, match=r"a\.bin: the disk is full"):
                fetched(server, tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(tmp_path.iterdir()) == []


def test_progress_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_BLOCK", 1024)
    told = []
    with faulty({"/a.bin": BODY}) as server:
        url, path = f"{server.url}/a.bin", tmp_path / "a.bin"
        download([url], path, on_progress=lambda *values: told.append(values))
    assert told[0] == ("a.bin", 1024, 2048)
    assert told[-1] == ("a.bin", 2048, 2048)


@given(script=st.lists(st.sampled_from(FAULTS), max_size=6), length=st.sampled_from([0, 1, 700]))
def test_whatever_a_server_does_it_is_the_right_file_or_our_error_and_a_rerun_finishes(
    tmp_path_factory, script, length
):
    folder = tmp_path_factory.mktemp("download")
    with FaultyServer({"/a.bin": BODY[:length] or b"x"}, script) as server:
        for _ in range(len(script) + 1):
            with suppress(EvergraphError):
                assert fetched(server, folder) == server.content("/a.bin")
                break
        assert (folder / "a.bin").read_bytes() == server.content("/a.bin")
        assert [path.name for path in folder.iterdir()] == ["a.bin"]


FILES = ("raw/a.bin", "raw/b.bin")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.bin").write_bytes(b"abc")
    (tmp_path / "raw" / "b.bin").write_bytes(b"x" * 3_000_000)
    return tmp_path


def test_recorded_in_the_format_of_sha256sum_and_held_to_it(root):
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    verify(root, FILES, {"raw/a.bin": abc})
    with pytest.raises(DataError, match=r"b\.bin: the SHA-256"):
        verify(root, FILES, {"raw/b.bin": "0" * 64})
    record(root, FILES)
    assert (root / SUMS).read_text().splitlines()[0] == f"{abc}  raw/a.bin"
    assert recorded(root) == {file: checksum(root / file) for file in FILES}
    verify(root, FILES, recorded(root))
    (root / "raw" / "a.bin").write_bytes(b"abd")
    with pytest.raises(WrongFileError, match=r"a\.bin: the SHA-256 is .*, but .* was expected"):
        verify(root, FILES, recorded(root))


def test_a_list_of_checksums_is_read_as_sha256sum_writes_it(tmp_path):
    path, sums = tmp_path / "sums.txt", ["A" * 64, "b" * 64]
    path.write_text(f"# four graphs\n\n{sums[0]}  arxiv.zip\n{sums[1]} *raw/my file.npz\n")
    assert read_sums(path) == {"arxiv.zip": "a" * 64, "raw/my file.npz": sums[1]}
    path.write_text(f"{sums[0]}  arxiv.zip\n123  reddit.zip\n")
    with pytest.raises(DataError, match=r"sums\.txt, line 2: must be a SHA-256 of 64 hexadecimal"):
        read_sums(path)
    with pytest.raises(DataError, match=r"absent: cannot be read as a list of checksums"):
        read_sums(tmp_path / "absent")


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), written_aside(path) as file:
        file.writelines([b"half", "no bytes"])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
