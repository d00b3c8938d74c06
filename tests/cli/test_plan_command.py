"""``evergraph plan`` as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.experiments import plan

SIZES = ("--set", "dataset.nodes=400", "--set", "dataset.classes=4")
GRAPH = ("synthetic", *SIZES, "--method", "slda", "--device", "cpu")


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let copies cost what they are said to: a process each takes seconds (``test_plan``)."""
    monkeypatch.setattr(
        plan, "cost_of", lambda _, graph, share: plan.Cost(share, share, share, 1e6, 0)
    )


@pytest.mark.usefixtures("costs")
def test_a_plan_is_a_table_for_people_and_one_object_for_programs(call: Any) -> None:
    out, err = call("plan", *GRAPH, "--seconds", "0", "--repeats", "3")
    assert "learning a copy of 100 nodes" in err
    assert "400 (estimated)" in out
    assert "3 seeds, one after another" in out
    told = json.loads(call("plan", *GRAPH, "--seconds", "0", "--json")[0])
    assert (told["nodes"], len(told["copies"])) == (400, 2)
    assert told["seed"]["memory"] == 1e6


def test_wrong_options_are_one_sentence(call: Any) -> None:
    for arguments, sentence in (
        (("nothing-such",), "nothing-such"),
        (("synthetic", "--method", "gemm"), "gemm"),
        (("synthetic", "--seconds", "-1"), "seconds must be"),
    ):
        assert sentence in call("plan", *arguments, expect=2)[1], arguments


@pytest.mark.usefixtures("costs")
def test_a_plan_takes_a_file(call: Any, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    np.savez(
        tmp_path / "g.npz",
        edge_index=draw.integers(200, size=(2, 600)),
        x=draw.standard_normal((200, 5), dtype=np.float32),
        y=np.arange(200) % 4,
    )
    out, _ = call("plan", str(tmp_path / "g.npz"), "--method", "slda", "--seconds", "0")
    assert "200 (estimated)" in out


HELD = """\
import multiprocessing
import time
from pathlib import Path

if multiprocessing.parent_process() is not None:  # a copy is being learned
    Path("held").touch()
    time.sleep(600)
"""


def test_an_interrupted_plan_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "held.py").write_text(HELD)
    command = [sys.executable, "-m", "evergraph.cli.app", "plan", *GRAPH, "--plugin", "held.py"]
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may ignore it
    )
    while not (tmp_path / "held").exists():
        assert running.poll() is None
        time.sleep(0.02)
    said = ""
    while not said:  # while a copy's process is being started Ctrl-C is not heard
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to it and its children
        with suppress(subprocess.TimeoutExpired):
            said = running.communicate(timeout=10)[1]
    assert running.returncode == 130
    assert "interrupted: nothing is kept" in said
    assert "Traceback" not in said
