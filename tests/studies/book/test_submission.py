"""A sound run becomes a row; a wrong one is refused with one sentence."""

import doctest
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import book_rows
import pytest
import submission
from book_rows import BookPlan, BookRow, check_book, check_file, checksum, rows_in
from submission import submitted

from evergraph.core.errors import EvergraphError
from evergraph.evaluation import anytime_accuracy, average_accuracy, average_forgetting
from evergraph.evaluation.evaluator import matrix_of
from evergraph.experiments.config import RunConfig, read_toml
from evergraph.experiments.runner import run

Result = dict[str, Any]


def read(run: Path) -> Result:
    result = json.loads((run / "result.json").read_text())
    return result


@pytest.fixture
def row(finished: Path, plan: BookPlan, tmp_path: Path) -> BookRow:
    return submitted(finished, book=tmp_path / "book", commit="abc", plan=plan)


def test_a_row_says_what_the_run_found(row, finished, tmp_path):
    result = read(finished)
    assert (row.dataset, row.setting, row.label) == ("small", "class-il", "slda")
    assert row.seeds == (0, 1)
    for testing in ("local", "global"):
        for average in ("balanced", "plain"):
            matrices = [matrix_of(seed[testing][average]) for seed in result["accuracy_matrix"]]
            told = row.values[testing][average]
            for name, metric in (
                ("average_accuracy", average_accuracy),
                ("average_forgetting", average_forgetting),
                ("anytime_accuracy", anytime_accuracy),
            ):
                assert told[name] == pytest.approx([metric(m) for m in matrices], abs=2e-5)
    assert row.bytes == result["memory"]["bytes"]
    assert row.commit == "abc"
    assert row.version == result["versions"]["evergraph"]
    assert "homophily" in row.facts


def test_a_written_row_is_read_back(row, plan, tmp_path):
    path = row.write(tmp_path / "book")
    assert path == tmp_path / "book/small/class-il/slda.json"
    assert rows_in(tmp_path / "book") == [row]
    assert check_book(tmp_path / "book", plan) == [row]


@pytest.mark.usefixtures("own_parts")
def test_a_row_holds_no_path_of_this_machine(plan, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from evergraph.methods import methods\n"
        "from evergraph.methods.slda import SLDA\n\n\n"
        "@methods.register\n"
        "class Mine(SLDA):\n"
        "    name = 'mine'\n"
    )
    config = next(job.config for job in plan.jobs() if job.label == "slda").to_dict()
    own = config | {"method": {"name": "mine"}, "plugins": [str(plugin)]}
    run(RunConfig.of(own), out=tmp_path / "run")
    row = submitted(tmp_path / "run", book=tmp_path / "book", commit="abc", plan=plan)
    assert str(tmp_path) not in row.write(tmp_path / "book").read_text()
    assert row.config["plugins"] == ["mine.py"]
    assert "--plugin mine.py" in row.command
    assert check_book(tmp_path / "book", plan) == [row]


def test_rows_are_never_replaced(row, finished, plan, tmp_path):
    row.write(tmp_path / "book")
    with pytest.raises(EvergraphError, match=r"slda\.json exists: choose another --label"):
        submitted(finished, book=tmp_path / "book", commit="abc", plan=plan)
    again = submitted(finished, book=tmp_path / "book", commit="abc", label="mine", plan=plan)
    assert again.path_in_book == "small/class-il/mine.json"


def at(path: str, value: Any = None) -> Callable[[Result], None]:
    """Return what sets the value at a path, computes it anew, or without one drops it."""
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))

    def change(values: Any) -> None:
        for part in way:
            values = values[part]
        if value is None:
            del values[last]
        else:
            values[last] = value(values[last]) if callable(value) else value

    return change


def edited(change: Callable[[Result], None]) -> Callable[[Path], None]:
    """Return what changes result.json in a run's folder."""

    def spoil(run: Path) -> None:
        result = read(run)
        change(result)
        (run / "result.json").write_text(json.dumps(result))

    return spoil


def reconfigured(**sections: Any) -> Callable[[Path], None]:
    """Return what changes the configuration in both files, as an honest run would have it."""

    def spoil(run: Path) -> None:
        values = read_toml(run / "config.toml")
        for name, value in sections.items():
            values[name] = {**values[name], **value} if isinstance(value, dict) else value
        config = RunConfig.of(values)
        (run / "config.toml").write_text(config.to_toml())
        edited(lambda result: result.update(config=config.to_dict()))(run)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (edited(at("versions", {})), r"versions must include evergraph"),
        (
            edited(at("dataset.edges", 238)),
            r"graph differs from the book's: edges must be 240, not 238",
        ),
        (edited(at("seconds.train", -1)), r"seconds\.train must be a number of at least 0, not -1"),
        (lambda run: (run / "result.json").unlink(), r"is not finished: it has no result\.json"),
        (lambda run: (run / "config.toml").unlink(), r"is not a results folder"),
        (lambda run: (run / "result.json").write_text("{"), r"result\.json cannot be read"),
        (reconfigured(stream={"split": [0.8, 0.1, 0.1]}), r"stream\.split must be .* small, not"),
        (reconfigured(part="validation"), r"part must be 'test'"),
        (reconfigured(dataset={"nodes": 61}), r"dataset\.nodes must be 60"),
        (reconfigured(dataset={"name": "wordnet"}), r"the book has no dataset 'wordnet'.*it has"),
        (reconfigured(stream={"setting": "task-il"}), r"no dataset 'synthetic' in setting task-il"),
        (reconfigured(topology={"hops": 1}), r"topology\.hops must be 2 .* book's slda.*--label"),
    ],
)
def test_a_wrong_run_is_refused_with_one_sentence(mine, plan, tmp_path, spoil, sentence):
    spoil(mine)
    with pytest.raises(EvergraphError, match=sentence) as refused:
        submitted(mine, book=tmp_path / "book", commit="abc", plan=plan)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "book").exists()


def test_a_run_with_fewer_seeds_is_refused(mine, plan, tmp_path):
    reconfigured(seeds=[0])(mine)
    edited(lambda result: result["accuracy_matrix"].pop())(mine)
    with pytest.raises(EvergraphError, match=r"seeds must be \[0, 1\]"):
        submitted(mine, book=tmp_path / "book", commit="abc", plan=plan)


def test_a_run_is_submitted_once(mine, plan, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(book_rows, "read_plan", lambda: plan)
    line = ["submission.py", str(mine), "--book", str(tmp_path / "book"), "--commit", "abc"]
    for arguments, said in (
        ([*line, "--check"], "valid; its row would be"),
        (line, "written to"),
        ([*line[:1], str(tmp_path / "book"), "--check"], "1 rows are valid"),
    ):
        monkeypatch.setattr("sys.argv", arguments)
        submission.main()
        assert said in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", line)
    with pytest.raises(SystemExit, match="choose another --label"):
        submission.main()


def test_examples_of_the_rules_hold():
    assert all(doctest.testmod(module).failed == 0 for module in (book_rows, submission))


# Rows that lie in the book


def respoiled(change: Callable[[Result], None], *, resealed: bool = True) -> Any:
    """Return what changes a row's file, its checksum too unless it was done by hand."""

    def spoil(path: Path) -> Path:
        values = json.loads(path.read_text())
        change(values)
        if resealed:
            values["checksum"] = checksum(values)
        path.write_text(json.dumps(values))
        return path

    return spoil


def moved(path: Path) -> Path:
    return path.rename(path.with_name("other.json"))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (respoiled(lambda v: v.update(bytes=1), resealed=False), r"checksum .* it was edited"),
        (respoiled(at("values.local.plain.average_accuracy.1")), r"each seed"),
        (moved, r"belongs at small/class-il/slda\.json"),
        (respoiled(lambda v: v.update(format=2)), r"format must be 1, not 2"),
        (respoiled(lambda v: v.update(seeds=[0])), r"seeds must be \[0, 1\]: seed 1 is missing"),
        (respoiled(lambda v: v.update(stars=5)), r"unknown field 'stars'"),
        (respoiled(at("command")), r"has no 'command'"),
        (respoiled(lambda v: v.update(command="rm -rf /")), r"command must be the evergraph"),
        (
            respoiled(lambda v: v.update(command=v["command"].replace("repeats", "seeds"))),
            r"command must run seeds \[0, 1\], and .* runs \[2\]",
        ),
        (respoiled(lambda v: v.update(date="today")), r"date must be a day"),
        (respoiled(lambda v: v.update(commit=" ")), r"commit must not be empty"),
        (respoiled(lambda v: v.update(method="tem")), r"method must be that of its configuration"),
        (respoiled(lambda v: v["facts"].update(nodes=61)), r"nodes must be 60, not 61"),
        (respoiled(lambda v: v["values"].pop("global")), r"must have global, balanced"),
        (respoiled(lambda v: v.update(failure="too slow")), r"must give the reason and have no"),
        (
            respoiled(at("tasks.local.balanced.0.final.0", 0.5)),
            r"curve of seed 0, local, balanced, must end at the mean",
        ),
    ],
)
def test_a_wrong_row_is_refused_with_one_sentence(row, plan, tmp_path, spoil, sentence):
    path = spoil(row.write(tmp_path / "book"))
    with pytest.raises(EvergraphError, match=sentence) as refused:
        check_file(path, tmp_path / "book", plan)
    assert "\n" not in str(refused.value)
