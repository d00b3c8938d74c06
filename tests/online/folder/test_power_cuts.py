"""Power cuts rebuilt from traced writes: what was acknowledged is there, and nothing else.

Every folder that a disk may be left with is opened. All acknowledged deltas are there, one more if
it was under way, and the learner is that of a twin. With ``synchronous=OFF``, or with snapshots
that are not synced, the same search must find losses, or it could not find any.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random, SystemRandom

import pytest

from evergraph.core.errors import EvergraphError
from power_cuts import WAYS, Cut, PowerCuts
from stand_in import bits, delta, opened, twin
from traced_calls import Step, synced_parent, trace

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: apt-get install strace"
)
MARKS = ("begun", "acknowledged")


def traced(tmp_path_factory: pytest.TempPathFactory, *careless: str) -> list[Step]:
    place = tmp_path_factory.mktemp("traced") / "learner"
    try:
        return trace(place, *careless)
    except PermissionError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    """What a writer did to the disk."""
    return traced(tmp_path_factory)


def cuts(done: list[Step], count: int, seed: int) -> list[Cut]:
    """Draw cuts: moments all over the trace, all ways in turn, and none but after a step."""
    draw = Random(seed)
    moments = [draw.randrange(len(done)) for _ in range(count)]
    return [Cut(after, WAYS[n % len(WAYS)], seed + n) for n, after in enumerate(moments)]


def wrong(power: PowerCuts, cut: Cut, place: Path) -> str | None:
    """Return what is wrong with the folder that a cut leaves; None where nothing is."""
    power.rebuild(cut, place)
    begun, acknowledged = (power.told(cut, word) for word in MARKS)
    try:
        with opened(place) as folder:
            if not acknowledged <= folder.seq <= begun:
                return f"{folder.seq} deltas, but {acknowledged} acknowledged and {begun} begun"
            if bits(folder.learner) != twin(folder.seq):
                return f"another learner after {folder.seq} deltas"
            folder.submit(delta(folder.seq + 1, key=f"k{folder.seq + 1}"))  # and it goes on
            if bits(folder.learner) != twin(folder.seq):
                return f"another learner one delta later, after {folder.seq}"
    except EvergraphError as error:
        return f"refused: {error}"
    return None


def losses(done: list[Step], count: int, seed: int, place: Path) -> list[str]:
    power = PowerCuts(done)
    found = ((cut, wrong(power, cut, place)) for cut in cuts(done, count, seed))
    return [f"{cut}: {what}" for cut, what in found if what is not None]


def test_the_trace_holds_what_the_folder_held(done: list[Step], tmp_path: Path) -> None:
    kinds = {step.kind for step in done}
    assert kinds >= {"data", "bind", "unbind", "sync", "mark"}
    power, last = PowerCuts(done), Cut(len(done) - 1, "everything", 0)
    assert power.told(last, "acknowledged") == 13
    power.rebuild(last, tmp_path / "whole")
    assert {path.name for path in (tmp_path / "whole").iterdir()} >= {
        "journal.sqlite", "evergraph-learner.json", "acknowledged", "snapshot-6", "snapshot-8"
    }  # fmt: skip
    assert wrong(power, last, tmp_path / "whole") is None


def test_forty_cuts_lose_nothing(done: list[Step], tmp_path: Path) -> None:
    found = losses(done, 42, 1, tmp_path / "cut")
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "count", "least"), [("journal", 24, 4), ("snapshots", 60, 2)])
def test_a_writer_that_does_not_wait_is_found_out(
    part: str, count: int, least: int, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    careless = traced(tmp_path_factory, part)
    found = losses(careless, count, 1, tmp_path / "cut")
    assert len(found) >= least, f"only {len(found)} of {count} cuts lost anything: {found}"


def test_the_name_of_a_new_folder_is_synced_before_anything_is_acknowledged(
    done: list[Step],
) -> None:
    assert synced_parent(done)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_cuts(done: list[Step], tmp_path: Path) -> None:
    seed = SystemRandom().randrange(2**31)
    found = losses(done, 500, seed, tmp_path / "cut")
    assert not found, f"{len(found)} of 500 with seed {seed}:\n" + "\n".join(found[:20])
