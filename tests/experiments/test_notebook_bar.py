"""In a notebook a run is one line that is written over."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import evergraph as eg
from evergraph.evaluation.evaluator import average_accuracy, matrix_of, spread
from evergraph.experiments import progress as notebook_bar
from evergraph.experiments.progress import ProgressLine, in_notebook
from evergraph.experiments.protocol import TaskReport
from evergraph.reports.runs import percent

SETTINGS = {"epochs": 10, "device": "cpu"}


class Shell:
    """What IPython calls the shell of a notebook; Colab's is made from it."""


Shell.__name__ = "ZMQInteractiveShell"


class Display:
    """Stands for a notebook's page: what is shown now, and how often it was changed."""

    def __init__(self) -> None:
        self.lines: list[ProgressLine] = []
        self.updates: list[ProgressLine] = []

    def __call__(self, line: ProgressLine, *, display_id: bool) -> Display:
        assert display_id
        self.lines.append(line)
        return self

    def update(self, line: ProgressLine) -> None:
        self.lines[-1] = line
        self.updates.append(line)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Display:
    page, ipython, display = Display(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = type("Colab", (Shell,), {})
    display.display = page
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return page


def test_a_script_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: None
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # imported by a library, not run in
    assert not in_notebook()


def test_a_run_leaves_one_line_that_is_not_drawn_for_every_epoch(
    small_graph, page, capsys, monkeypatch
):
    assert in_notebook()
    monkeypatch.setattr(notebook_bar, "PAUSE", 0.0)
    eg.run(small_graph, "finetune", **SETTINGS)
    assert len(page.updates) > 30  # 3 tasks of 10 epochs
    assert any("<progress" in line._repr_html_() for line in page.updates)
    [line] = page.lines
    assert repr(line).startswith("finetune on a graph in memory  seed 0  task 3/3  AA ")
    assert repr(line).endswith(" s")
    assert "<progress" not in line._repr_html_()
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(notebook_bar, "PAUSE", 3600.0)
    page.updates.clear()
    eg.run(small_graph, "finetune", **SETTINGS)
    assert len(page.updates) == 1  # the last alone


def test_what_was_interrupted_says_where(small_graph, page):
    def stop(task, epoch):
        if task == 1:
            raise KeyboardInterrupt

    observer = eg.experiments.runner.Observer(on_epoch=stop)
    with pytest.raises(KeyboardInterrupt):
        eg.run(small_graph, "finetune", observer=observer, progress=True, **SETTINGS)
    [line] = page.lines
    assert "stopped after" in repr(line)
    assert 0.3 < (line.share or 0) < 0.4


def test_a_line_has_the_digits_of_the_table(capsys):
    row = [0.75, 0.75, 0.9, 0.95]  # 83.75, or in another order of summation just below
    rows = {way: {"balanced": row} for way in ("local", "global")}
    bar = notebook_bar.RunProgress(label="x", epochs={"tem": 1}, tasks=4, seeds=1)
    bar.on_task("tem", 0, TaskReport(3, rows, {}, {}))
    told = percent(spread([average_accuracy(matrix_of([row[:n] for n in (1, 2, 3, 4)]))]))
    assert f"AA {told} local, {told} global" in capsys.readouterr().err


def test_the_time_left_counts_what_was_learned_before_an_interruption(capsys):
    """Of 4 tasks, 2 of which took 30 s together in an earlier process, about 30 s are left."""
    bar = notebook_bar.RunProgress(label="paths", epochs={"": 1}, tasks=4, seeds=1)
    bar._moves = False
    rows = {"local": {"balanced": [1.0]}, "global": {"balanced": [1.0]}}
    for index in range(2):
        bar.on_task("", 0, TaskReport(index, rows, {"train": 10.0, "evaluate": 5.0}, {}))
        bar._written_at -= 10  # lines are at least so many seconds apart
    written = capsys.readouterr().err.splitlines()
    assert [line.partition("about ")[2] for line in written] == ["45 s left", "30 s left"]
