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
from power_cuts import LAST, PARENT, WAYS, Cut, PowerCuts, Step, trace
from stand_in import bits, delta, opened, twin

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: apt-get install strace"
)
Traced = tuple[Path, list[Step]]


def traced(tmp_path_factory: pytest.TempPathFactory, *careless: str) -> Traced:
    place = tmp_path_factory.mktemp("traced") / "learner"
    try:
        return place, trace(place, *careless)
    except PermissionError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """A folder, and what a writer did to the disk to fill it."""
    return traced(tmp_path_factory)


def wrong(power: PowerCuts, cut: Cut, place: Path) -> str | None:
    """Return what is wrong with the folder that a cut leaves; None where nothing is."""
    power.rebuild(cut, place)
    begun, acknowledged = power.told(cut, "begun"), power.told(cut, "acknowledged")
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
    """Cut at moments all over a trace, in all ways in turn, and tell what is wrong then."""
    power, draw, found = PowerCuts(done), Random(seed), []
    moments = [draw.randrange(len(done)) for _ in range(count)]
    for number, after in enumerate(moments):
        cut = Cut(after, WAYS[number % len(WAYS)], seed + number)
        if what := wrong(power, cut, place):
            found.append(f"{cut}: {what}")
    return found


def files(place: Path) -> dict[Path, bytes]:
    found = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"]
    return {path.relative_to(place): path.read_bytes() for path in found}


def test_the_trace_holds_what_the_folder_held_and_its_name(careful: Traced, tmp_path: Path) -> None:
    place, done = careful
    power, last = PowerCuts(done), Cut(len(done) - 1, "everything", 0)
    power.rebuild(last, tmp_path / "whole")
    assert files(tmp_path / "whole") == files(place)  # not a byte is missed
    assert {"snapshot-6", "snapshot-8"} <= {path.name for path in place.iterdir()}
    assert power.told(last, "acknowledged") == LAST
    assert wrong(power, last, tmp_path / "whole") is None
    # The name of a new folder is synced before anything is acknowledged.
    named = next(at for at, step in enumerate(done) if (step.kind, step.node) == ("sync", PARENT))
    assert named < next(at for at, step in enumerate(done) if step.data.startswith(b"acknow"))


def test_forty_cuts_lose_nothing(careful: Traced, tmp_path: Path) -> None:
    found = losses(careful[1], 42, 1, tmp_path / "cut")
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "count", "least"), [("journal", 24, 4), ("snapshots", 60, 2)])
def test_a_writer_that_does_not_wait_is_found_out(
    part: str, count: int, least: int, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    found = losses(traced(tmp_path_factory, part)[1], count, 1, tmp_path / "cut")
    assert len(found) >= least, f"only {len(found)} of {count} cuts lost anything: {found}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_cuts(careful: Traced, tmp_path: Path) -> None:
    seed = SystemRandom().randrange(2**31)
    found = losses(careful[1], 500, seed, tmp_path / "cut")
    assert not found, f"{len(found)} of 500 with seed {seed}:\n" + "\n".join(found[:20])
