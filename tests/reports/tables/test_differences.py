"""Which differences hold, per dataset and over all of them."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evergraph.core.errors import UnknownNameError
from evergraph.evaluation.statistics import paired_difference
from evergraph.reports.comparing import differences_in, standings
from evergraph.reports.figures import Picture, critical_difference
from evergraph.reports.report import PageSection, sections_of, tables_of, write_report
from evergraph.reports.runs import Group, collect, grouped
from evergraph.reports.tables import Table, csv_text, latex, markdown

WriteRun = Callable[..., Path]


def of_seeds(run: Path, scores: list[float], **config: Any) -> None:
    """Let a written run have a task and these accuracies, a seed each."""
    path = run / "result.json"
    result = json.loads(path.read_text())
    mean = sum(scores) / len(scores)
    ways = ("local", "global")
    result["accuracy_matrix"] = [
        {"seed": seed, **{way: {"balanced": [[score]]} for way in ways}}
        for seed, score in enumerate(scores)
    ]
    for way in ways:
        result["average_accuracy"][way]["balanced"] = {"mean": mean, "std": 0.01}
        result["average_accuracy_curve"][way]["balanced"] = [mean]
    result["config"] |= config
    path.write_text(json.dumps(result))


def three(folder: Path, write_run: WriteRun, **kept: Any) -> Path:
    scores = {"best": [0.90, 0.91, 0.92], "near": [0.90, 0.92, 0.899], "far": [0.5, 0.51, 0.49]}
    for label, found in scores.items():
        of_seeds(write_run(folder, label, [0.5], **kept), found)
    return folder


def groups_of(folder: Path) -> tuple[Group, ...]:
    return grouped(collect(folder), folder)


def shown(groups: Sequence[Group], pictures: tuple[Picture, ...] = ()) -> list[PageSection]:
    """Return the section, without drawing all the other figures of a report."""
    sections = sections_of(groups, tables_of(groups), {"ranks": pictures})
    return [section for section in sections if section.heading == "Which differences hold"]


def rows(table: Table) -> dict[str, list[str]]:
    return {row[0].text: [cell.text for cell in row[3:]] for row in table.rows}


def test_the_others_are_measured_from_the_best(tmp_path, write_run):
    groups = groups_of(three(tmp_path, write_run))
    table = tables_of(groups)["differences"]
    found = rows(table)
    assert found["best"][:3] == ["-", "-", "best"]
    assert found["near"][2] == "cannot tell"
    assert found["far"][2] == "worse"
    assert found["far"][0].startswith("-41.0 (-4")
    by_hand = paired_difference([0.5, 0.51, 0.49], [0.90, 0.91, 0.92])
    told = {row["method"]: row for row in csv.DictReader(io.StringIO(csv_text(table)))}["far"]
    assert float(told["p local"]) == pytest.approx(by_hand.p_value)
    # Holm over all three pairs: that of near and far is surer, so this is the second smallest p.
    assert float(told["corrected p local"]) == pytest.approx(2 * by_hand.p_value)
    assert float(told["low local"]) == pytest.approx(replace(by_hand, confidence=0.975).low)
    for form in (markdown(table), latex(table)):
        assert "cannot tell" in form


def test_the_best_is_corrected_for_all_pairs(tmp_path, write_run):
    # The pair with the best is the surest of three: its p is multiplied by 3, not by the 2
    # comparisons that the table shows, since the best was picked by the same numbers.
    scores = {"best": [0.90, 0.91, 0.92], "near": [0.90, 0.92, 0.899], "far": [0.5, 0.511, 0.521]}
    for label, found in scores.items():
        of_seeds(write_run(tmp_path, label, [0.5]), found)
    far = differences_in(groups_of(tmp_path)[0], "local").comparisons["far"]
    by_hand = paired_difference(scores["far"], scores["best"], least_spread=0.001)
    assert far.p_value == pytest.approx(3 * by_hand.p_value)


def test_a_chosen_one_is_compared_with_alone(tmp_path, write_run):
    groups = groups_of(three(tmp_path, write_run))
    found = rows(tables_of(groups, "far")["differences"])
    assert (found["far"][2], found["best"][2], found["near"][2]) == (
        "reference",
        "better",
        "better",
    )
    (group,) = groups
    chosen, best = (differences_in(group, "local", name) for name in ("far", None))
    assert chosen.comparisons.keys() == {"best", "near"}
    # The larger p of two comparisons with far, and the second of all three pairs.
    ours, theirs = chosen.comparisons["best"], best.comparisons["far"]
    p_value = ours.difference.p_value
    assert p_value == pytest.approx(theirs.difference.p_value)
    assert (ours.corrected_p, theirs.corrected_p) == pytest.approx((p_value, 2 * p_value))
    with pytest.raises(UnknownNameError, match="unknown run to compare with 'fra': did you mean"):
        write_report(collect(tmp_path), tmp_path, against="fra")


def test_one_seed_and_other_streams_make_no_claim(tmp_path, write_run):
    of_seeds(write_run(tmp_path, "lone", [0.5]), [0.1])
    assert "differences" not in tables_of(groups_of(tmp_path))  # from what?
    assert shown(groups_of(tmp_path)) == []
    three(tmp_path, write_run)
    of_seeds(write_run(tmp_path, "ordered", [0.5], order="shuffled"), [0.1, 0.1])
    pooled = {"method": {"name": "tpp-per-test-set"}}
    of_seeds(write_run(tmp_path, "pooled", [0.5]), [0.2, 0.2, 0.2], **pooled)
    found = rows(tables_of(groups_of(tmp_path))["differences"])
    assert found["lone"][:3] == ["-81.0", "-", "one seed"]
    assert found["ordered"][2] == found["pooled"][2] == "not comparable"
    (section,) = shown(groups_of(tmp_path))
    assert "Not enough seeds: 1 of 6 runs have a single one" in section.content
    assert "Not enough datasets to rank methods: 3 of one setting" in section.content


@pytest.fixture(scope="module")
def seven_datasets(tmp_path_factory: pytest.TempPathFactory, write_run: WriteRun) -> Path:
    folder = tmp_path_factory.mktemp("seven")
    pooled = {"method": {"name": "tpp-per-test-set"}}
    for place in range(7):
        three(folder, write_run, dataset=f"graph{place}")
        of_seeds(
            write_run(folder, "pooled", [0.5], dataset=f"graph{place}"), [0.99, 0.98], **pooled
        )
    of_seeds(write_run(folder, "once", [0.5], dataset="graph0"), [0.99, 0.98])
    return folder


def test_methods_are_ranked_over_datasets(seven_datasets):
    local, everywhere = standings(groups_of(seven_datasets))
    assert (local.testing, everywhere.testing) == ("local", "global")
    assert local.methods == ("best", "near", "far")
    assert local.ranks.mean_ranks == (1.0, 2.0, 3.0)  # 0.91, 0.907 and 0.5 on each
    # What answers whole test sets has no rank among those that answer nodes.
    assert local.left_out == ("once", "pooled")
    table = tables_of(groups_of(seven_datasets))["ranks"]
    told = [(row[0].text, row[2].text, row[4].text, row[7].text) for row in table.rows[:3]]
    # CD = 2.343 · √(12/42) = 1.25: 1 and 3 are told apart, 1 and 2 are not
    assert told == [
        ("best", "local", "1.00", "best"),
        ("near", "local", "2.00", "cannot tell"),
        ("far", "local", "3.00", "worse"),
    ]
    assert (
        "Left out, since not run on every dataset or not comparable: once and pooled."
        in table.caption
    )
    # Few datasets are ranked, and nothing is claimed.
    groups = groups_of(seven_datasets)
    last = [[r[7].text for r in tables_of(groups[:n])["ranks"].rows[:3]] for n in (3, 4, 5, 6)]
    assert last == [["best", "cannot tell", "cannot tell"]] * 3 + [["best", "cannot tell", "worse"]]


@pytest.mark.usefixtures("undrawn")
def test_the_page_has_diagrams_where_there_are_datasets(seven_datasets):
    groups = groups_of(seven_datasets)
    pictures = tuple(map(critical_difference, standings(groups)))
    assert [picture.name for picture in pictures] == [
        "critical_difference-class-il-local",
        "critical_difference-class-il-global",
    ]
    (section,) = shown(groups, pictures)
    assert section.content.count("<figure>") == 2
    assert "Not enough" not in section.content
