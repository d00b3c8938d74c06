"""The book is built once, row by row, and goes on after whatever stopped it."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import build_book
import pytest
from book_rows import BookPlan, check_book, read_plan, read_row, rows_in
from build_book import Building, located, main, named_jobs, open_book

from evergraph.core.errors import UnknownNameError
from evergraph.datasets import load
from evergraph.experiments.build import load_graph
from evergraph.graphs import homophily
from evergraph.methods import methods

ROOT = Path(__file__).parents[3]


@pytest.fixture
def opened(plan: BookPlan, tmp_path: Path) -> Any:
    """Open the small book, whatever of it is there."""

    def again(**options: Any) -> Building:
        out = tmp_path / "runs"
        jobs = named_jobs(plan.jobs(out=out), ["slda", "short"])
        return open_book(jobs, out=out, book=tmp_path / "book", commit="abc", **options)

    return again


@pytest.mark.usefixtures("in_process")
def test_rows_are_written_as_they_come(opened, plan, tmp_path):
    book = tmp_path / "book"
    known = []

    def follow(event):
        if event.kind == "done":
            known.append(len(rows_in(book)) if book.exists() else 0)

    opened().run(workers=1, on_event=follow)
    assert known == [0, 1, 1, 2]  # two seeds a row
    assert {row.label for row in check_book(book, plan)} == {"slda", "short"}
    (book / "small/class-il/short.json").unlink()  # its run is there: it is not learned again
    rest = opened()
    assert (len(rest.bench.jobs), rest.kept) == (1, 1)
    rest.run(workers=1)
    assert len(rows_in(book)) == 2
    assert opened().bench.jobs == []


@pytest.mark.usefixtures("in_process")
def test_a_failure_is_a_row_that_is_tried_again_when_asked(opened, plan, tmp_path, monkeypatch):
    from evergraph.methods.slda import SLDA

    fail = Mock(side_effect=RuntimeError("too deep"))
    with monkeypatch.context() as broken:
        broken.setattr(SLDA, "fit_task", fail)
        opened().run(workers=1)
    rows = {row.label: row for row in check_book(tmp_path / "book", plan)}
    assert rows["slda"].failure == "RuntimeError: too deep"
    assert rows["short"].failure is None
    assert opened().bench.jobs == []
    opened(retry=True).run(workers=1)
    assert all(row.failure is None for row in rows_in(tmp_path / "book"))


def test_a_row_of_another_configuration_is_built_again(opened, plan, finished, tmp_path):
    from submission import submitted

    book = tmp_path / "book"
    row = submitted(finished, book=book, commit="abc", plan=plan)
    row.write(book)
    assert [job.label for job in opened().bench.jobs] == ["short"]
    (tmp_path / "runs" / "lock").unlink()
    row.config["stream"]["split"] = [0.5, 0.25, 0.25]
    row.write(book)
    assert [job.label for job in opened().bench.jobs] == ["slda", "short"]


def test_what_is_out_of_time_is_neither_result_nor_failure(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(build_book, "run_work", lambda work, **_: None)
    rows = opened().run(workers=1, minutes=0)
    assert [(row.result, row.failure) for row in rows] == [(None, None)] * 2
    assert not (tmp_path / "book").exists()


# The shipped plan


def test_the_plan_has_every_method_and_graph(shipped):
    labels = {job.label for job in shipped}
    ours = [
        name for name in methods.names() if methods.resolve(name).__module__[:10] == "evergraph."
    ]
    assert labels >= set(ours)
    # Random graphs are those of the plan.
    plan = read_plan()
    jobs = {job.dataset: job for job in shipped if job.config.dataset.name == "synthetic"}
    assert len(jobs) == 14
    for name in ("homophily-0.1", "classes-40", "tasks-20"):
        graph, facts = load_graph(jobs[name].config), plan.facts[name]
        assert (graph.num_nodes, graph.num_edges) == (facts["nodes"], facts["edges"])
        assert homophily(graph) == pytest.approx(facts["homophily"], abs=1e-6)
    assert {job.dataset for job in shipped} == set(plan.facts)


@pytest.mark.parametrize(("name", "file"), [("actor", "actor"), ("computers", "amazon_computers")])
def test_graphs_in_files_are_those_of_the_plan(real, name, file):
    graph, facts = load(real(file)), read_plan().facts[name]
    assert (graph.num_nodes, graph.num_edges) == (facts["nodes"], facts["edges"])
    assert homophily(graph) == pytest.approx(facts["homophily"], abs=1e-6)


def test_graphs_in_files_are_left_out_where_they_are_not(shipped, tmp_path):
    job = next(job for job in shipped if job.dataset == "actor")
    assert located(job, None) is None
    assert located(job, tmp_path) is None
    (tmp_path / "actor.npz").touch()
    here = located(job, tmp_path)
    assert here.config.dataset.name == str(tmp_path / "actor.npz")


def test_an_unknown_name_is_met_with_the_nearest(shipped):
    with pytest.raises(UnknownNameError, match="did you mean 'noise-4'"):
        named_jobs(shipped, ["noise-3", "tem"])


def test_committed_rows_are_sound():
    if not (ROOT / "book").is_dir():
        pytest.skip("the book is not in this copy")
    assert len(check_book(ROOT / "book")) >= 5


@pytest.mark.usefixtures("in_process")
def test_a_row_from_before_a_parameter_came_is_kept(opened, tmp_path):
    opened().run(workers=1)
    path = tmp_path / "book/small/class-il/slda.json"
    row = read_row(path)
    earlier = {key: v for key, v in row.config["method"].items() if key != "shrinkage"}
    assert earlier != row.config["method"]
    replace(row, config=row.config | {"method": earlier}).write(tmp_path / "book")
    assert opened().bench.jobs == []
    replace(row, config=row.config | {"method": earlier | {"gone": 1}}).write(tmp_path / "book")
    assert [job.label for job in opened().bench.jobs] == ["slda"]


@pytest.mark.usefixtures("in_process")
def test_a_row_is_kept_where_only_unused_training_differs(opened, tmp_path):
    opened().run(workers=1)
    for label in ("slda", "short"):
        row = read_row(tmp_path / f"book/small/class-il/{label}.json")
        training = row.config["training"] | {"weight_decay": 0.5}
        replace(row, config=row.config | {"training": training}).write(tmp_path / "book")
    assert [job.label for job in opened().bench.jobs] == ["short"]


# The command


def test_what_is_missing_is_listed(capsys, tmp_path):
    wanted = ["--only", "tem,slda,noise-2,actor,class-il", "--list", "--book", str(tmp_path)]
    assert main(wanted) == 0
    found = capsys.readouterr()
    assert found.out.splitlines() == [
        "slda on noise-2, class-il",
        "tem on noise-2, class-il",
        "2 rows are missing, 0 are there",
    ]
    assert "left out: actor.npz: no folder was given with --data" in found.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "temm"], "error: unknown method, dataset or setting 'temm'"),
        (["--data", "nowhere"], "error: --data must be an existing folder"),
    ],
)
def test_what_is_wrong_is_one_sentence(capsys, arguments, sentence):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(sentence)
