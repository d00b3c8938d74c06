"""``evergraph plan`` as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SIZES = ("--set", "dataset.nodes=400", "--set", "dataset.classes=4")
GRAPH = ("synthetic", *SIZES, "--method", "slda", "--device", "cpu")


def test_a_plan_shows_its_copies_and_the_estimate(call: Any) -> None:
    out, err = call("plan", *GRAPH, "--seconds", "0", "--seeds", "3")
    assert "learning a copy of 100 nodes" in err
    assert "400 (estimated)" in out
    assert "3 seeds, one after another" in out


def test_a_plan_for_programs_is_one_object(call: Any) -> None:
    plan = json.loads(call("plan", *GRAPH, "--seconds", "0", "--json")[0])
    assert plan["nodes"] == 400
    assert len(plan["copies"]) == 2
    assert plan["seed"]["memory"] > 0


def test_wrong_options_are_one_sentence(call: Any) -> None:
    for arguments, sentence in (
        (("nothing-such",), "nothing-such"),
        (("synthetic", "--method", "gemm"), "gemm"),
        (("synthetic", "--seconds", "-1"), "seconds must be"),
    ):
        assert sentence in call("plan", *arguments, expect=2)[1], arguments


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


def test_an_interrupted_plan_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "evergraph.cli.app", "plan", *GRAPH]
    plan = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert plan.stderr is not None
    while "learning a copy" not in plan.stderr.readline():
        pass
    time.sleep(0.3)
    os.killpg(plan.pid, signal.SIGINT)  # as a terminal does: to the process and its children
    said = plan.communicate(timeout=60)[1]
    assert plan.returncode == 130
    assert "interrupted: a plan keeps nothing" in said
    assert "Traceback" not in said
