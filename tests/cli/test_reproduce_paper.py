"""``evergraph reproduce paper --download`` on miniatures in the publishers' own formats."""

import csv
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest

import miniatures
from faulty_server import FaultyServer

pytestmark = pytest.mark.skipif(not find_spec("ogb"), reason="ogb is an extra")

COMMAND = ("reproduce", "paper", "--download", "--quick", "--device", "cpu", "--out", "out")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    """Serve the miniatures, which are the paper's datasets for the time being."""
    files = {f"/{name}": content for name, content in miniatures.published().items()}
    with FaultyServer(files) as server:
        path = tmp_path / "catalogue.toml"
        path.write_text(miniatures.catalogue(server.url))
        monkeypatch.setenv("EVERGRAPH_CATALOGUE", str(path))
        monkeypatch.setenv("EVERGRAPH_CACHE", str(tmp_path / "cache"))
        yield server


@pytest.mark.usefixtures("learned_here")
def test_downloads_are_learned_from(call, server, tmp_path):
    server.script[:] = ["cut", "503", "wrong"]
    command = (*COMMAND, "--tables", "table3", "--methods", "tem")
    out, err = call(*command)
    for name in miniatures.FILES:
        assert f"{name}: 96 nodes" in out
        with (tmp_path / f"out/quick/paper/table3-{name}.csv").open() as file:
            rows = list(csv.reader(file))
        assert [row[0] for row in rows[1:]] == ["PDGNNs-TEM"]
        ours, theirs, points = (float(rows[1][place].split()[0]) for place in (1, 4, 5))
        assert points == pytest.approx(ours - theirs, abs=0.06)
        assert rows[1][6] == f"{'yes' if abs(points) <= 5 else 'no'} (5.0)"
        assert (tmp_path / f"out/quick/paper/table3-{name}.tex").exists()
    assert "cora.npz.wrong, and it is fetched once more" in err
    page = (tmp_path / "out/quick/paper/paper.md").read_text()
    assert "| table3-products | 1 |" in page
    requests = len(server.requests)
    sums = re.findall(r"^[0-9a-f]{64}  .+$", out, re.MULTILINE)
    assert len(sums) == 1 + 6 + 2 + 5
    (tmp_path / "sums").write_text("\n".join(sums))
    again, _ = call(*command, "--checksums", "sums")
    assert again == out
    assert len(server.requests) == requests  # nothing is fetched twice


@pytest.mark.usefixtures("learned_here")
def test_what_cannot_be_had_or_fails_is_a_row_and_exit_code_1(call, server, tmp_path, monkeypatch):
    from evergraph.methods.tem import TEM

    fail = Mock(side_effect=ValueError("no luck"))
    kept = server.files.pop("/arxiv.zip")
    command = (*COMMAND, "--datasets", "corafull,arxiv", "--tables", "table5", "--methods", "tem")
    with monkeypatch.context() as patch:
        patch.setattr(TEM, "begin_task", fail)
        out, err = call(*command, expect=1)
    assert "failed: ValueError: no luck" in out
    assert "dataset 'arxiv' could not be fetched from https://ogb.stanford.edu" in out
    assert err.endswith(
        "1 of 1 runs failed, and arxiv could not be loaded: run the same command again to retry "
        "them and continue\n"
    )
    server.files["/arxiv.zip"] = kept
    out, _ = call(*command)
    assert "failed:" not in out


def test_what_is_wrong_is_one_sentence_before_any_work(call, server, tmp_path, monkeypatch):
    (tmp_path / "sums").write_text("abc  arxiv.zip\n")
    for given, message in (
        (("--tables", "table4"), "unknown name in --tables 'table4'"),
        (("--methods", "tme"), "unknown name in --methods 'tme': did you mean 'tem'?"),
        (("--methods", " ,"), "methods must be comma-separated names, not ' ,'"),
        (("--checksums", "absent"), "absent: cannot be read as a list of checksums"),
        (("--checksums", "sums"), "sums, line 1: must be a SHA-256"),
    ):
        out, err = call(*COMMAND, *given, expect=2)
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith(f"error: {message}")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 250_000}))
    _, err = call(*COMMAND, expect=2)
    assert err == (
        f"error: {tmp_path}/cache: fetching corafull, arxiv, reddit, products takes about 400 kB "
        "of disk, but only 250 kB are free, 150 kB too few: free some space, or set "
        "EVERGRAPH_CACHE to a folder on another disk\n"
    )
    assert server.requests == []


@pytest.mark.usefixtures("learned_here")
def test_files_carried_by_hand(call, server, tmp_path):
    miniatures.written(tmp_path / "stick")
    call(
        *shlex.split(
            "reproduce paper --from stick --quick --methods tem --out out --tables "
            "table3 --datasets reddit --device cpu"
        )
    )
    assert server.requests == []


@pytest.mark.slow
@pytest.mark.usefixtures("server")
def test_all_methods_of_both_tables_on_all_four(call, tmp_path):
    out, _ = call(*COMMAND, "--workers", "1")
    assert "failed" not in out.replace("┃ failed ┃", "")
    assert len(list((tmp_path / "out/quick").rglob("result.json"))) == 4 * 2 * 12
