"""Downloads from a server that does wrong what servers do wrong."""

from __future__ import annotations

import resource
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import DownloadError, EvergraphError, ResourceError
from evergraph.datasets.fetching import download, fetch
from faulty_server import FAULTS, FaultyServer, faulty

BODY = bytes(range(256)) * 8


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # pooch waits between tries
    monkeypatch.setattr(fetch, "TIMEOUT", 0.5)


def fetched(server: FaultyServer, folder: Path) -> bytes:
    path = folder / "a.bin"
    download([f"{server.url}/a.bin"], path)
    return path.read_bytes()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_got_over(tmp_path: Path, fault: str) -> None:
    with faulty({"/a.bin": BODY}, "cut", fault) as server:
        assert fetched(server, tmp_path) == server.content("/a.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_tries_have_an_end_and_nothing_is_left(tmp_path: Path) -> None:
    with faulty({"/a.bin": BODY}, "cut", *["503"] * 3) as server:
        with pytest.raises(
            DownloadError, match=r"a\.bin could not be downloaded \(http.*: 503 Ser"
        ):
            fetched(server, tmp_path)
        assert len(server.requests) == 4
        assert list(tmp_path.iterdir()) == []
        assert fetched(server, tmp_path) == BODY


def test_the_next_mirror_is_asked(tmp_path: Path) -> None:
    with faulty({"/a.bin": BODY}, *["404"] * 4) as server:
        urls = [f"{server.url}/a.bin", f"{server.url}/moved/a.bin"]
        download(urls, tmp_path / "a.bin")
        assert (tmp_path / "a.bin").read_bytes() == BODY
        assert server.requests[-1] == ("/moved/a.bin", None)


def test_where_nothing_answers_it_is_one_sentence(tmp_path: Path) -> None:
    with faulty({}) as server:
        pass
    with pytest.raises(DownloadError, match="Connection refused") as caught:
        fetched(server, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with faulty({"/a.bin": BODY}) as server:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
        try:
            with pytest.raises(ResourceError, match=r"a\.bin: the disk is full"):
                fetched(server, tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.bin.partial").mkdir()
    (tmp_path / ".a.bin.partial" / "tmp123").write_bytes(b"half")
    with faulty({"/a.bin": BODY}) as server:
        assert fetched(server, tmp_path) == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_BLOCK", 1024)
    told: list[tuple[str, int, int | None]] = []
    with faulty({"/a.bin": BODY}) as server:
        url, path = f"{server.url}/a.bin", tmp_path / "a.bin"
        download([url], path, on_progress=lambda *values: told.append(values))
    assert told[0] == ("a.bin", 1024, 2048)
    assert told[-1] == ("a.bin", 2048, 2048)


@given(script=st.lists(st.sampled_from(FAULTS), max_size=6), length=st.sampled_from([0, 1, 700]))
def test_whatever_a_server_does_it_is_the_right_file_or_our_error_and_a_rerun_finishes(
    tmp_path_factory: pytest.TempPathFactory, script: list[str], length: int
) -> None:
    folder = tmp_path_factory.mktemp("download")
    # A server that says a file is shorter than it is has sent all of it, as far as HTTP can tell:
    # checksums are for that, one floor up.
    script = [fault for fault in script if fault != "too-short"]
    with FaultyServer({"/a.bin": BODY[:length] or b"x"}, script) as server:
        for _ in range(len(script) + 1):
            with suppress(EvergraphError):
                assert fetched(server, folder) == server.content("/a.bin")
                break
        assert (folder / "a.bin").read_bytes() == server.content("/a.bin")
        assert [path.name for path in folder.iterdir()] == ["a.bin"]
