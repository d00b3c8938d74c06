"""What is claimed of two runs, and what is not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evergraph as eg
from evergraph.core.errors import ConfigurationError, ResultsError
from evergraph.reports.comparing import compare_trials, corrected, over_datasets
from evergraph.reports.runs import way_of
from evergraph.reports.trials import Trials

BETTER = {"better": "worse", "worse": "better"}
scores = st.integers(0, 100).map(lambda n: n / 100)


def trials(name: str, scores: Any, tasks: Any = (), **over: Any) -> Trials:
    """Return repeats with seeds 0, 1, ... where they are a list; or the tasks of one seed."""
    if len(tasks):
        scores, tasks = [float(np.mean(tasks))], {0: list(tasks)}
    by_seed = scores if isinstance(scores, dict) else dict(enumerate(scores))
    stream = {"setting": "class-il"} | over.pop("stream", {})
    config = {"dataset": {"name": "rings"}, "method": {"name": name}, "stream": stream}
    given = {
        "name": name,
        "dataset": "rings",
        "setting": "class-il",
        "metric": "accuracy",
        "way": ("local", "balanced"),
        "config": config | over.pop("config", {}),
        "scores": by_seed,
        "tasks": dict(tasks),
    }
    return Trials(**given | over)


def test_paired_seeds_by_hand():
    # differences 0.19, 0.20 and 0.21: mean 0.20, s = 0.01, 4.303 · 0.01/√3 = 0.025 on either side
    found = compare_trials(
        trials("tem", [0.79, 0.81, 0.83]), trials("finetune", [0.60, 0.61, 0.62])
    )
    assert found.verdict == "better"
    assert repr(found) == (
        "tem is better than finetune on rings, class-il: 81.0 against 61.0, +20.0 points "
        "(95 % interval 17.5 to 22.5, 3 paired seeds of one split, p < 0.001)."
    )
    found = compare_trials(trials("finetune", [0.60, 0.61]), trials("tem", [0.79, 0.80], stream={}))
    assert found.sentence.startswith("finetune is worse than tem on rings, class-il: 60.5 against ")
    assert "-19.0 points" in found.sentence
    # Chance is not called a difference.
    found = compare_trials(trials("a", [0.7, 0.8, 0.6]), trials("b", [0.8, 0.6, 0.65]))
    assert found.verdict == "cannot tell"
    assert found.sentence.startswith("cannot tell a from b on rings, class-il: 70.0 against 68.3")


def test_seeds_are_paired_by_number_and_the_rest_is_left_out():
    # Paired by place, a would win every time.
    a, b = trials("a", {3: 0.5, 1: 0.6, 2: 0.8}), trials("b", {1: 0.6, 2: 0.8, 9: 0.1})
    found = compare_trials(a, b)
    assert (found.pairing.basis, found.difference.mean) == ("paired seeds", 0.0)
    assert "without seed 3, which only a has, without seed 9, which only b has" in found.sentence
    # Other seeds are two samples.
    a, b = trials("a", {0: 0.8, 1: 0.82}), trials("b", {5: 0.5, 6: 0.52, 7: 0.51})
    found = compare_trials(a, b)
    assert found.difference.pairs == 0
    assert "2 and 3 unpaired seeds of one split" in found.sentence
    assert found.verdict == "better"


def test_splits_of_one_graph_claim_less_than_seeds_of_one_split():
    # Differences 0.01, 0.02 and 0.04: mean 0.0233, s = 0.01528; t is 2.65 of 2 degrees of freedom
    # on one split, and 2.65/√(1 + 3/4) = 2 if each tests another fifth.
    scores = [0.81, 0.84, 0.83], [0.80, 0.82, 0.79]
    for stream, t in (({}, 2.645751), ({"split_seed": "run"}, 2.0)):
        found = compare_trials(
            *(trials(n, s, stream=stream) for n, s in zip("ab", scores, strict=True))
        )
        assert found.difference.mean / found.difference.error == pytest.approx(t)
    assert "3 paired seeds and overlapping splits" in found.sentence


@pytest.mark.parametrize(
    ("stream", "part", "tested"),
    [
        ({}, "test", 0.2),
        ({"split": [0.5, 0.1, 0.4]}, "validation", 0.1),
        ({"labelled": 0.05}, "test", 0.9),
        ({"split": [20, 30, 50]}, "test", 0.1),  # of 5 classes, 250 of 2,500 nodes
        ({"split": [200, 300, 500]}, "test", 0.5),  # of classes that are smaller
    ],
)
def test_the_share_of_nodes_that_a_split_tests(stream, part, tested):
    facts = {"nodes": 2500, "classes": 5}
    of = trials("a", [0.8], stream=stream, facts=facts, config={"part": part})
    of = replace(of, config=of.config | {"stream": stream | {"split_seed": "run"}})
    assert of.test_share == pytest.approx(tested)
    assert of.overlap == pytest.approx(tested / (1 - tested))


def test_splits_that_come_out_alike_are_spread_by_a_test_node():
    few = {"facts": {"nodes": 100}, "stream": {"split_seed": "run"}}  # one test node is 5 points
    close = compare_trials(trials("a", [0.85] * 3, **few), trials("b", [0.80] * 3, **few))
    few["stream"] = {"split_seed": "run"}
    far = compare_trials(trials("a", [0.95] * 3, **few), trials("b", [0.30] * 3, **few))
    assert (close.verdict, far.verdict) == ("cannot tell", "better")
    # No graph is so large that a difference beyond the last digit told is one.
    run = {"split_seed": "run"}
    same = compare_trials(
        trials("a", [0.8001] * 3, stream=run), trials("b", [0.80] * 3, stream=run)
    )
    assert same.verdict == "cannot tell"


def test_one_seed_claims_nothing_and_says_so():
    # Ahead by far on each of eight tasks, and still of one seed.
    ours, theirs = [0.9, 0.8, 0.9, 0.7, 0.9, 0.8, 0.9, 0.9], [0.2, 0.1, 0.3, 0.1, 0.1, 0.3, 0.1, 0]
    found = compare_trials(trials("tem", [], ours), trials("finetune", [], theirs))
    assert found.verdict == "one seed"
    assert found.sentence == (
        "cannot tell tem from finetune on rings, class-il: 85.0 against 15.0, +70.0 points (one "
        "seed, which shows no spread: run both with at least 2 of the same seeds)."
    )
    told = found.to_dict()
    assert (told["low"], told["high"], told["p_value"]) == (None, None, None)
    # Seeds that do not meet, and one seed against several, are no better.
    for a, b in (({0: 0.8}, {1: 0.2}), ({0: 0.8}, {0: 0.2, 1: 0.21, 2: 0.22})):
        assert compare_trials(trials("a", a), trials("b", b)).verdict == "one seed"


def test_identical_repeats_count_as_one():
    # Two closed forms on one split: however often they are run, they were seen once.
    found = compare_trials(trials("a", [0.85] * 10), trials("b", [0.80] * 10))
    assert found.verdict == "identical repeats"
    assert found.sentence == (
        "cannot tell a from b on rings, class-il: 85.0 against 80.0, +5.0 points (identical "
        "repeats, which count as one: stream.split_seed=run gives each seed its own split)."
    )
    # Nor is one of them surer beside a method that varies, paired or not.
    varied = trials("b", [0.5, 0.51, 0.52])
    assert compare_trials(trials("a", [0.85] * 3), varied).verdict == "identical repeats"
    apart = trials("a", {7: 0.85, 8: 0.85})
    assert compare_trials(apart, varied).verdict == "identical repeats"
    # Equal averages of different tasks are two observations.
    tasks = {0: [0.9, 0.8], 1: [0.8, 0.9], 2: [0.85, 0.85]}
    differ = replace(trials("a", [0.85] * 3), tasks=tasks)
    assert compare_trials(differ, varied).verdict == "better"


few_scores = st.integers(0, 6).map(lambda n: n / 6)


@given(st.data(), st.lists(st.tuples(few_scores, few_scores), min_size=1, max_size=5))
def test_repeating_a_run_never_makes_a_claim_stronger(data, drawn):
    again = data.draw(st.lists(st.sampled_from(drawn), max_size=6))
    once, often = (
        compare_trials(*(trials(name, [p[i] for p in pairs]) for i, name in enumerate("ab")))
        for pairs in (drawn, data.draw(st.permutations([*drawn, *again])))
    )
    assert (often.verdict in BETTER) == (once.verdict in BETTER)
    assert often.p_value == pytest.approx(once.p_value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": {"dataset": {"name": "cora"}}}, "dataset is 'rings' for a and 'cora' for b"),
        ({"config": {"dataset": {"name": "rings", "seed": 2}}}, "dataset.seed is None for a and 2"),
        ({"stream": {"order": "shuffled"}}, "stream.order is 'label' for a and 'shuffled' for b"),
        ({"stream": {"split_seed": 1}}, "stream.split_seed is 0 for a and 1 for b"),
        ({"config": {"part": "validation"}}, "part is 'test' for a and 'validation' for b"),
        ({"config": {"protocol": "cglb"}}, "protocol is None for a and 'cglb' for b"),
        ({"way": ("global", "balanced")}, "testing is 'local' for a and 'global' for b"),
        ({"way": ("local", "plain")}, "averaging is"),
        ({"metric": "R2"}, "metric is 'accuracy' for a and 'R2' for b"),
        (
            {"config": {"method": {"name": "tpp-per-test-set"}}},
            "what is answered at once is 'a node' for a and 'a whole test set' for b",
        ),
    ],
)
def test_other_questions_are_not_compared(change, said):
    with pytest.raises(ResultsError, match=f"^a and b cannot be compared: {said}"):
        compare_trials(trials("a", [0.8, 0.9]), trials("b", [0.8, 0.9], **change))


def test_another_graph_of_the_same_name_is_not_compared_if_it_is_known():
    a, b = (trials(n, [0.8, 0.9], facts={"nodes": x}) for n, x in (("a", 10), ("b", 20)))
    with pytest.raises(ResultsError, match="the number of nodes is 10 for a and 20 for b"):
        compare_trials(a, b)
    assert compare_trials(a, replace(b, facts={})).verdict == "cannot tell"


@given(st.lists(st.tuples(scores, scores), min_size=2, max_size=5), st.booleans())
def test_swapping_both_turns_the_verdict(drawn, apart):
    ours, theirs = zip(*drawn, strict=True)
    a, b = trials("a", list(ours)), trials("b", list(theirs))
    if apart:
        b = replace(b, scores={seed + 10: score for seed, score in b.scores.items()})
    there, back = compare_trials(a, b), compare_trials(b, a)
    assert BETTER.get(there.verdict, there.verdict) == back.verdict
    assert there.difference.mean == pytest.approx(-back.difference.mean)
    if there.verdict in BETTER:  # a claim holds of the interval as well
        assert there.difference.low > 0 or there.difference.high < 0


def on_datasets(gaps: list[float]) -> list[Any]:
    return [
        compare_trials(
            trials("a", [0.5 + gap, 0.5 + gap + 0.002], dataset=f"d{place}"),
            trials("b", [0.5, 0.501], dataset=f"d{place}"),
        )
        for place, gap in enumerate(gaps)
    ]


def test_over_datasets_wilcoxon_decides():
    (over,) = over_datasets(on_datasets([0.1, 0.2, 0.3, 0.15, 0.05, 0.07]))
    assert over.sentence == (
        "a is better than b over 6 datasets, class-il: ahead on 6 and behind on 0 (Wilcoxon's "
        "signed ranks, p = 0.031)."
    )
    (few,) = over_datasets(on_datasets([0.1, 0.2, 0.3]))
    assert few.sentence == (
        "cannot tell a from b over 3 datasets, class-il: ahead on 3 and behind on 0 (too few "
        "datasets for Wilcoxon's test, which needs 6)."
    )
    assert over_datasets(on_datasets([0.1])) == []


def test_many_comparisons_are_corrected():
    alone = on_datasets([0.02] * 4)
    together = corrected(alone)
    assert [found.verdict for found in alone] == ["better"] * 4
    assert [found.verdict for found in together] == ["cannot tell"] * 4
    assert together[0].corrected_p == pytest.approx(4 * alone[0].p_value)
    assert together[0].sentence.endswith("interval and p corrected by Holm).")
    assert corrected(alone[:1]) == alone[:1]
    # One seed is not tested, and costs the others nothing.
    lone = compare_trials(trials("a", [0.9]), trials("b", [0.5]))
    assert corrected([lone, *alone]) == [lone, *together]


@given(st.lists(st.lists(st.tuples(scores, scores), min_size=2, max_size=4), max_size=5))
def test_an_interval_says_what_the_corrected_p_says(drawn):
    found = corrected(
        [
            compare_trials(*(trials(n, [p[i] for p in pairs]) for i, n in enumerate("ab")))
            for pairs in drawn
        ]
    )
    for each in found:
        if each.pairing.shows_spread and abs(each.p_value - 0.05) > 1e-9:
            without_0 = each.difference.low > 0 or each.difference.high < 0
            assert without_0 == (each.verdict in BETTER)
            assert each.difference.confidence >= 0.95 - 1e-12


def test_the_interval_of_many_comparisons_by_hand():
    # d is 0.01 and 0.02, t of one degree of freedom: p of 4 alike is multiplied by 4, so that the
    # interval of 95 % is the one of 98.75 %, whose t is 50.92 = tan(0.49375 π) instead of 12.706
    a, b = trials("a", [0.81, 0.83]), trials("b", [0.80, 0.81])
    found = corrected([compare_trials(a, b)] * 4)[0]
    assert found.difference.high == pytest.approx(0.015 + np.tan(0.49375 * np.pi) * 0.005)


def test_a_protocol_says_how_results_are_read():
    result = {"headline": {"testing": "global", "averaging": "plain"}}
    assert way_of(result) == ("global", "plain")
    assert way_of(result, "local", "balanced") == ("local", "balanced")
    assert way_of({"headline": None, "metric": {"key": "r2"}}) == ("local", "r2")


def test_results_in_memory_are_compared():
    small = {
        "setting": "class-il",
        "repeats": 2,
        "epochs": 1,
        "device": "cpu",
        "dataset__nodes": 80,
        "dataset__classes": 4,
        "dataset__features": 8,
    }
    a, b = (eg.run("synthetic", method=method, **small) for method in ("adr", "finetune"))
    found = eg.compare(a, b)
    assert found.difference.mean == pytest.approx(a.average_accuracy() - b.average_accuracy())
    assert f"{100 * a.average_accuracy():.1f} against {100 * b.average_accuracy():.1f}" in str(
        found
    )
    assert repr(eg.compare(a, a)).startswith("cannot tell adr (first) from adr (second) on ")
    globally = eg.compare(a, b, testing="global", averaging="plain")
    assert "tested globally, plain accuracy" in globally.sentence
    with pytest.raises(ConfigurationError, match="averaging must be one of balanced, plain"):
        eg.compare(a, b, averaging="macro_f1")
    with pytest.raises(ConfigurationError, match="unknown testing 'here'"):
        eg.compare(a, b, testing="here")
