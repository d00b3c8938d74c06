"""evergraph compare: folders, names in a folder, rows of a book."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from book_rows import BookRow

from evergraph.reports.run_tables import comparison
from evergraph.reports.runs import collect
from written_runs import result_of, write

Call = Callable[..., tuple[str, str]]
SCORES = {"tem": [0.80, 0.81, 0.82], "finetune": [0.20, 0.19, 0.22], "late": [0.81, 0.80, 0.82]}


def result(scores: list[float], dataset: str) -> dict[str, Any]:
    matrices = [
        {
            "seed": seed,
            "local": {"balanced": [[x]], "plain": [[x - 0.1]]},
            "global": {"balanced": [[x / 2]], "plain": [[x / 2]]},
        }
        for seed, x in enumerate(scores)
    ]
    return result_of([sum(scores) / len(scores)], dataset=dataset) | {"accuracy_matrix": matrices}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for dataset in ("rings", "trees"):
        for method, scores in SCORES.items():
            folder = tmp_path / "runs" / dataset / "class-il" / method
            write(folder, result(scores, dataset))
    return tmp_path / "runs"


def test_two_folders_make_one_sentence(call, runs):
    out, _ = call("compare", "runs/rings/class-il/tem", "runs/rings/class-il/finetune")
    assert out == (
        "tem is better than finetune on rings, class-il: 81.0 against 20.3, +60.7 points (95 % "
        "interval 57.8 to 63.5, 3 paired seeds of one split, p < 0.001).\n"
    )


def test_ways_of_testing_are_chosen(call, runs):
    folders = ("runs/rings/class-il/tem", "runs/rings/class-il/finetune")
    assert "40.5 against 10.2" in call("compare", *folders, "--testing", "global")[0]
    out, _ = call("compare", *folders, "--averaging", "plain")
    assert "rings, class-il, plain accuracy: 71.0 against 10.3" in out


def test_names_are_found_on_every_dataset(call, runs):
    (runs / "trees" / "class-il" / "late" / "result.json").unlink()
    lines = call("compare", "tem", "finetune", "--in", "runs")[0].splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "tem is better than finetune on rings, class-il",
        "tem is better than finetune on trees, class-il",
        "cannot tell tem from finetune over 2 datasets, class-il",
    ]
    assert "by Holm" in lines[0]
    out, err = call("compare", "tem", "late", "--in", "runs")
    assert out.startswith("cannot tell tem from late on rings, class-il: 81.0 against 81.0")
    assert err == "left out, because only tem has results: trees, class-il\n"


def test_one_name_twice_is_told_apart_by_its_place(call, runs):
    out, _ = call("compare", "runs/rings/class-il/tem", "runs/rings/class-il/tem")
    place = "tem (runs/rings/class-il/tem)"
    assert out.startswith(f"cannot tell {place} from {place} on rings, class-il: ")


def test_json_has_every_number(call, runs):
    told = json.loads(call("compare", "tem", "finetune", "--in", "runs", "--json")[0])
    first = told["comparisons"][0]
    assert (first["verdict"], first["seeds_a"], first["over"]) == (
        "better",
        [0, 1, 2],
        "paired seeds",
    )
    assert first["low"] < first["difference"] < first["high"]
    assert told["over_datasets"][0]["datasets"] == ["rings", "trees"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tem", "runs"], "error: tem must be a results folder, or a method with --in"),
        (["runs", "runs"], "error: runs holds more than one run on rings, class-il, "),
        (["tmp", "tem", "--in", "runs"], "unknown method in runs 'tmp': did you mean 'tem'?"),
        (["tem", "late", "--in", "runs", "--testing", "here"], "unknown testing 'here'"),
        (["tem", "late", "--in", "runs", "--averaging", "r2"], "averaging must be one of balanced"),
        (["tem", "late", "--in", "absent"], "no such results folder: absent"),
        (
            ["runs/rings/class-il/tem", "runs/trees/class-il/tem"],
            "have no dataset and setting in common: runs/rings/class-il/tem has rings, class-il",
        ),
    ],
)
def test_unreadable_results(arguments, said, call, runs):
    _, err = call("compare", *arguments, expect=2)
    assert said in err
    assert err.count("\n") == 1


def test_rows_of_a_book_are_compared(call, tmp_path):
    for label, scores in SCORES.items():
        values = {"balanced": {"average_accuracy": scores}}
        BookRow(
            dataset="rings",
            setting="class-il",
            label=label,
            method=label,
            protocol=None,
            config=result(scores, "rings")["config"],
            command="",
            commit="",
            versions={},
            machine="",
            date="",
            seeds=(0, 1, 2),
            values={"local": values, "global": values},
        ).write(tmp_path / "book")
    out, _ = call("compare", "tem", "finetune", "--in", "book")
    assert out.startswith("tem is better than finetune on rings, class-il: 81.0 against 20.3")
    _, err = call("compare", "tem", "finetune", "--in", "book", "--averaging", "plain", expect=2)
    assert "unknown averaging 'plain'" in err


def test_runs_of_one_method_in_a_table_are_told_apart_by_their_folders(tmp_path):
    for place, dataset in (("a", "rings"), ("b", "rings"), ("c", "trees")):
        write(tmp_path / place, result(SCORES["tem"], dataset))
    rows = [row[0] for row in comparison(collect(tmp_path)).texts]
    assert sorted(rows) == ["tem", f"tem ({tmp_path}/a)", f"tem ({tmp_path}/b)"]
