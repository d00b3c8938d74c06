"""Every method under every protocol, and no run learned twice."""

from pathlib import Path

from evergraph.experiments.bench.benchmark import Row
from evergraph.experiments.bench.jobs import BenchConfig, expand
from evergraph.experiments.build import resolved
from evergraph.studies import Options
from evergraph.studies.protocols import ORDER, _cells, _spread, headline, results_under_protocols

READINGS = {"local": {"balanced": 0.9, "plain": 0.8}, "global": {"balanced": 0.6, "plain": 0.5}}


def told(labels: list[str]) -> object:
    """Return what stands in for running a benchmark: the same numbers for all but one row."""

    def bench(config: BenchConfig, folder: Path) -> list[Row]:
        rows = []
        for job in expand(config, out=folder):
            labels.append(job.label)
            means = {
                t: {a: {"mean": m, "std": None} for a, m in of.items()}
                for t, of in READINGS.items()
            }
            matrix = {t: {a: [[m], [m, m]] for a, m in of.items()} for t, of in READINGS.items()}
            result = {
                "average_accuracy": means,
                "average_forgetting": means,
                "accuracy_matrix": [{"seed": 0, **matrix}],
                "headline": {"testing": "local", "averaging": "balanced"},
                "config": resolved(job.config).to_dict(),
            }
            rows.append(Row(job, result, None))
        return rows

    return bench


def test_protocols_that_ask_for_the_same_run_share_it(tmp_path):
    labels = []
    options = Options(out=tmp_path, bench=told(labels), seeds=(0,))
    results = results_under_protocols("synthetic", ["tem", "analytic", "tpp"], options)
    assert set(results) == {(m, p) for m in ("tem", "analytic", "tpp") for p in ORDER}
    run = [label for label in labels if not label.endswith("ocgl")]  # which needs other streams
    assert run == [
        "tem+paper",
        "tem+delome",
        "tem+puma",
        "tem+llm4gcl",  # a budget each, and other tasks
        "analytic+paper",
        "analytic+llm4gcl",  # it has no memory to be limited
        "tpp+paper",
        "tpp+tpp",
        "tpp+llm4gcl",  # test sets are answered by another method
    ]
    reported = {
        p: headline(r)["mean"]
        for (m, p), r in results.items()
        if m == "tem" and isinstance(r, dict)
    }
    assert reported["paper"] == reported["cglb"] == reported["tpp"] == 0.9
    assert reported["puma"] == 0.8  # plain
    assert reported["llm4gcl"] == 0.5  # global and plain


def test_the_spread_is_told_in_one_line(tmp_path):
    options = Options(out=tmp_path, bench=told([]), seeds=(0,))
    results = results_under_protocols("synthetic", ["tem", "finetune"], options)
    assert _spread("tem", results).startswith(
        "Protocols: from 50.0 (llm4gcl) to 90.0 (paper), 40.0 points apart. Readings of one run: "
        "up to 40.0 points apart"
    )
    result = results["tem", "paper"]
    assert _cells("tpp", result)[1] == "local, balanced, per test set (here per node)"
    assert _cells("puma", result)[:3] == ("puma", "local, plain", "90.0")  # as the result says
    # What cannot be run is a row that says why.
    asked, reason = _cells("tpp", "no such thing")[1:3]
    assert asked.startswith("local, balanced, per test set")
    assert reason == "not run: no such thing"
