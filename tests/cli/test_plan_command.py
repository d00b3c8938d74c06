"""``evergraph plan`` as a user meets it."""

import json
import os
import signal
import time
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import Thread

import pytest

from evergraph.experiments import plan
from waiting import until

SIZES = ("--set", "dataset.nodes=400", "--set", "dataset.classes=4")
GRAPH = ("synthetic", *SIZES, "--method", "slda", "--device", "cpu")


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let copies cost what they are said to: a process each takes seconds (``test_plan``)."""

    def learned(*_: object, share: float, seconds: float) -> plan.LearnedCopy:
        return plan.LearnedCopy(share, (100, 100), ((share, share, 1e6, 0),) * 2)

    monkeypatch.setattr(plan, "learned_copy", learned)


@pytest.mark.usefixtures("costs")
def test_a_plan_is_a_table_for_people_and_one_object_for_programs(call):
    out, err = call("plan", *GRAPH, "--seconds", "0", "--repeats", "3")
    assert "learning a copy of 48 nodes" in err
    assert "400 (estimated)" in out
    assert "3 seeds, one after another" in out
    told = json.loads(call("plan", *GRAPH, "--seconds", "0", "--json")[0])
    assert (told["nodes"], len(told["copies"])) == (400, 2)
    assert told["seed"]["memory"] == pytest.approx(1e6)
    assert told["seed"]["processor"] == pytest.approx(2.0)  # twice the share a task


def test_wrong_options_are_one_sentence(call):
    for arguments, sentence in (
        (("nothing-such",), "nothing-such"),
        (("synthetic", "--method", "gemm"), "gemm"),
        (("synthetic", "--seconds", "-1"), "seconds must be"),
    ):
        assert sentence in call("plan", *arguments, expect=2)[1], arguments


def held(*_: object) -> None:
    """Be a copy that is being learned; Ctrl-C is for the process that waits for it."""
    Path("aside").write_text(str(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    Path("aside").rename("held")  # whole as soon as it is there
    time.sleep(600)


def test_an_interrupted_plan_is_one_sentence_and_leaves_no_process(call, tmp_path, monkeypatch):
    def interrupt():
        until(lambda: (tmp_path / "held").exists(), seconds=60)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(plan, "_learned", held)
    monkeypatch.setattr(plan, "get_context", lambda _: get_context("fork"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    Thread(target=interrupt).start()
    try:
        _, err = call("plan", *GRAPH, expect=130)
    finally:
        signal.signal(signal.SIGINT, before)
    assert err.endswith("interrupted: nothing is kept, run the same command again\n")
    assert "Traceback" not in err
    assert (tmp_path / "held").read_text() == str({signal.SIGINT})
    assert active_children() == []
