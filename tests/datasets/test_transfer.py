"""Downloads from a server that does wrong what servers do wrong."""

from __future__ import annotations

import resource
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.request import Request

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.core.errors import DownloadError, EvergraphError, ResourceError
from evergraph.datasets.fetching import Patience, download
from evergraph.datasets.fetching.request import Fault, _Redirects
from faulty_server import FAULTS, FaultyServer, faulty

BODY = bytes(range(256)) * 8
HASTY = Patience(tries=4, first_wait=0.0, timeout=0.2, least_rate=100_000)


def fetch(server: FaultyServer, folder: Path, *, patience: Patience = HASTY) -> bytes:
    path = folder / "a.bin"
    download([f"{server.url}/a.bin"], path, patience=patience)
    return path.read_bytes()


@pytest.mark.parametrize("fault", [f for f in FAULTS if f not in ("too-short", "changed")])
def test_a_fault_is_got_over(tmp_path: Path, fault: str) -> None:
    with faulty({"/a.bin": BODY}, "cut", fault) as server:
        assert fetch(server, tmp_path) == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_the_rest_alone_is_asked_for(tmp_path: Path) -> None:
    with faulty({"/a.bin": BODY}, "cut", "cut") as server:
        assert fetch(server, tmp_path) == BODY
        assert server.requests == [
            ("/a.bin", None), ("/a.bin", "bytes=1024-"), ("/a.bin", "bytes=1536-")
        ]  # fmt: skip


def test_a_server_without_ranges_begins_again(tmp_path: Path) -> None:
    with faulty({"/a.bin": BODY}, "cut", "no-range") as server:
        assert fetch(server, tmp_path) == BODY
        assert len(server.requests) == 2


def test_another_version_is_never_mixed_with_what_is_there(tmp_path: Path) -> None:
    with faulty({"/a.bin": BODY}, "cut", "changed") as server:
        assert fetch(server, tmp_path) == server.content("/a.bin") != BODY
    with faulty({"/a.bin": BODY}, "no-version", "cut") as server:
        (tmp_path / "a.bin").unlink()
        assert fetch(server, tmp_path) == BODY


def test_patience_has_an_end_and_the_next_call_goes_on(tmp_path: Path) -> None:
    with faulty({"/a.bin": BODY}, "cut", *["503"] * 4) as server:
        with pytest.raises(DownloadError) as caught:
            fetch(server, tmp_path)
        assert str(caught.value) == (
            f"a.bin could not be downloaded after 0 MB ({server.url}/a.bin: HTTP 503 Service "
            "Unavailable): what has come is kept, and the same command goes on from there"
        )
        assert {path.name for path in tmp_path.iterdir()} == {"a.bin.part", "a.bin.part.json"}
        assert fetch(server, tmp_path) == BODY
        assert server.requests[-1] == ("/a.bin", "bytes=1024-")


@pytest.mark.parametrize(("fault", "said"), [
    ("404", "HTTP 404 Not Found"), ("gzip", "it is sent in the encoding 'gzip'"),
])  # fmt: skip
def test_what_no_try_mends_is_said_at_once(tmp_path: Path, fault: str, said: str) -> None:
    with faulty({"/a.bin": BODY}, fault) as server:
        with pytest.raises(DownloadError, match=said):
            fetch(server, tmp_path)
        assert len(server.requests) == 1


def test_the_next_mirror_is_asked(tmp_path: Path) -> None:
    with faulty({"/a.bin": BODY}, "404") as server:
        urls = [f"{server.url}/a.bin", f"{server.url}/moved/a.bin"]
        download(urls, tmp_path / "a.bin", patience=HASTY)
        assert (tmp_path / "a.bin").read_bytes() == BODY


def test_a_mirror_with_the_same_version_goes_on(tmp_path: Path) -> None:
    with faulty({"/a.bin": BODY}, "cut", "404") as server:
        urls = [f"{server.url}/a.bin", f"{server.url}/moved/a.bin"]
        download(urls, tmp_path / "a.bin", patience=HASTY)
        assert (tmp_path / "a.bin").read_bytes() == BODY
        assert server.requests[-1] == ("/moved/a.bin", "bytes=1024-")


@pytest.mark.parametrize("fault", ["drip", "silent"])
def test_a_server_that_is_too_slow_is_left(tmp_path: Path, fault: str) -> None:
    with faulty({"/a.bin": BODY}, fault) as server:
        assert fetch(server, tmp_path) == BODY
        assert len(server.requests) == 2


def test_where_nothing_answers_it_is_said_soon(tmp_path: Path) -> None:
    with faulty({}) as server:
        pass
    with pytest.raises(DownloadError, match="Connection refused"):
        fetch(server, tmp_path)


def test_https_is_never_left(tmp_path: Path) -> None:
    def redirected(old: str, new: str) -> Request | None:
        return _Redirects().redirect_request(Request(old), None, 302, "", {}, new)  # type: ignore[arg-type]

    assert redirected("http://here/a", "https://there/a") is not None
    assert redirected("http://here/a", "http://there/a") is not None
    with pytest.raises(Fault, match="redirected from https to http://there/a"):
        redirected("https://here/a", "http://there/a")


def test_a_server_that_nobody_vouches_for_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    with FaultyServer({"/a.bin": BODY}, ["redirect"], tls=tls) as server:
        with pytest.raises(DownloadError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(server, tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert fetch(server, tmp_path) == BODY


def test_a_full_disk_is_one_sentence_and_the_next_call_goes_on(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with faulty({"/a.bin": BODY}) as server:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
        try:
            with pytest.raises(ResourceError, match=r"a\.bin: the disk is full .* goes on from th"):
                fetch(server, tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (tmp_path / "a.bin.part").stat().st_size == 1500
        assert fetch(server, tmp_path) == BODY
        assert server.requests[-1] == ("/a.bin", "bytes=1500-")


def test_a_file_that_cannot_fit_is_refused_before_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with (
        faulty({"/a.bin": BODY}) as server,
        pytest.raises(ResourceError, match="about 0 MB of disk, but only 0 MB are free"),
    ):
        fetch(server, tmp_path)


def test_ctrl_c_keeps_what_has_come(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with faulty({"/a.bin": BODY}, "cut") as server:
        url, path = f"{server.url}/a.bin", tmp_path / "a.bin"
        with pytest.raises(KeyboardInterrupt):
            download([url], path, patience=HASTY, on_progress=interrupt)
        assert (tmp_path / "a.bin.part").read_bytes() == BODY[:1024]
        assert fetch(server, tmp_path) == BODY
        assert server.requests[-1] == ("/a.bin", "bytes=1024-")


def test_a_part_whose_version_nobody_knows_is_not_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"whose?")
    with faulty({"/a.bin": BODY}) as server:
        assert fetch(server, tmp_path) == BODY
        assert server.requests == [("/a.bin", None)]


def test_proxies_are_those_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = "http://publisher.invalid/a.bin"
    with faulty({far: BODY}) as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.delenv("no_proxy", raising=False)
        download([far], tmp_path / "a.bin", patience=HASTY)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    with faulty({"/a.bin": BODY}, "cut") as server:
        download(
            [f"{server.url}/a.bin"], tmp_path / "a.bin", patience=HASTY,
            on_progress=lambda *values: told.append(values),
        )  # fmt: skip
    assert told[0] == ("a.bin", 1024, 2048)
    assert told[-1] == ("a.bin", 2048, 2048)


@settings(max_examples=25, deadline=None)
@given(script=st.lists(st.sampled_from(FAULTS), max_size=8), length=st.sampled_from([0, 1, 700]))
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
                assert fetch(server, folder) == server.content("/a.bin")
                break
        assert (folder / "a.bin").read_bytes() == server.content("/a.bin")
        assert [path.name for path in folder.iterdir()] == ["a.bin"]
