"""What is claimed of two runs, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evergraph as eg
from evergraph.core.errors import ConfigurationError, ResultsError
from evergraph.reports.comparing import Trials, compare_trials, corrected, over_datasets, way_of

BETTER = {"better": "worse", "worse": "better"}


def trials(name: str, scores: Any, tasks: Any = (), **over: Any) -> Trials:
    """Return repeats with seeds 0, 1, ... where they are a list; or the tasks of one seed."""
    if len(tasks):
        scores, tasks = [float(np.mean(tasks))], {0: list(tasks)}
    by_seed = scores if isinstance(scores, dict) else dict(enumerate(scores))
    stream = {"setting": "class-il"} | over.pop("stream", {})
    config = {"dataset": {"name": "rings"}, "method": {"name": name}, "stream": stream}
    given: dict[str, Any] = {
        "name": name, "dataset": "rings", "setting": "class-il", "metric": "accuracy",
        "way": ("local", "balanced"), "config": config | over.pop("config", {}),
        "scores": by_seed, "tasks": dict(tasks),
    }  # fmt: skip
    return Trials(**given | over)


def test_paired_seeds_by_hand() -> None:
    # differences 0.19, 0.20 and 0.21: mean 0.20, s = 0.01, 4.303 · 0.01/√3 = 0.025 on either side
    found = compare_trials(
        trials("tem", [0.79, 0.80, 0.81]), trials("finetune", [0.60, 0.60, 0.60])
    )
    assert found.verdict == "better"
    assert repr(found) == (
        "tem is better than finetune on rings, class-il: 80.0 against 60.0, +20.0 points "
        "(95 % interval 17.5 to 22.5, 3 paired seeds of one split, p < 0.001)."
    )


def test_the_other_way_round_it_is_worse() -> None:
    found = compare_trials(trials("finetune", [0.60, 0.60]), trials("tem", [0.79, 0.80], stream={}))
    assert found.sentence.startswith("finetune is worse than tem on rings, class-il: 60.0 against ")
    assert "-19.5 points" in found.sentence


def test_chance_is_no_difference() -> None:
    found = compare_trials(trials("a", [0.7, 0.8, 0.6]), trials("b", [0.8, 0.6, 0.65]))
    assert found.verdict == "no difference"
    assert found.sentence.startswith("no difference: a and b on rings, class-il: 70.0 against 68.3")


def test_seeds_are_paired_by_number_and_the_rest_is_left_out() -> None:
    # Paired by place, a would win every time.
    a, b = trials("a", {3: 0.5, 1: 0.6, 2: 0.8}), trials("b", {1: 0.6, 2: 0.8, 9: 0.1})
    found = compare_trials(a, b)
    assert (found.pairing.basis, found.difference.mean) == ("paired seeds", 0.0)
    assert "without seed 3, which only a has, without seed 9, which only b has" in found.sentence


def test_other_seeds_are_two_samples() -> None:
    a, b = trials("a", {0: 0.8, 1: 0.82}), trials("b", {5: 0.5, 6: 0.52, 7: 0.51})
    found = compare_trials(a, b)
    assert not found.difference.paired
    assert "2 and 3 unpaired seeds of one split" in found.sentence
    assert found.verdict == "better"


def test_splits_that_follow_seeds_are_told() -> None:
    run = {"split_seed": "run"}
    found = compare_trials(trials("a", [0.8, 0.9], stream=run), trials("b", [0.1, 0.2], stream=run))
    assert "2 paired seeds and splits" in found.sentence


def test_seeds_that_come_out_alike_are_spread_by_a_test_node() -> None:
    few = {"facts": {"nodes": 100}}  # 20 test nodes: one is 5 points
    close = compare_trials(trials("a", [0.85] * 3, **few), trials("b", [0.80] * 3, **few))
    far = compare_trials(trials("a", [0.95] * 3, **few), trials("b", [0.30] * 3, **few))
    assert (close.verdict, far.verdict) == ("no difference", "better")
    many = {"facts": {"nodes": 10_000}}
    assert compare_trials(
        trials("a", [0.85] * 3, **many), trials("b", [0.80] * 3, **many)
    ).verdict == "better"  # fmt: skip
    # No graph is so large that a difference beyond the last digit told is one.
    same = compare_trials(trials("a", [0.8001] * 3), trials("b", [0.80] * 3))
    assert same.verdict == "no difference"


def test_one_seed_is_compared_by_tasks_and_says_so() -> None:
    ours, theirs = [0.9, 0.8, 0.9, 0.7, 0.9, 0.8], [0.2, 0.1, 0.3, 0.1, 0.1, 0.3]
    found = compare_trials(trials("tem", [], ours), trials("finetune", [], theirs))
    assert found.pairing.basis == "tasks"
    assert found.p_value == 2 / 2**6  # Wilcoxon's, which is the larger one
    assert found.sentence.startswith("tem did better than finetune on rings, class-il: 83.3 agai")
    assert found.sentence.endswith(
        "over 6 tasks, p = 0.031); with a single seed this covers these test nodes, not the "
        "randomness of learning."
    )


def test_one_seed_and_few_tasks_tell_nothing() -> None:
    found = compare_trials(trials("a", [], [0.9] * 5), trials("b", [], [0.1, 0.2, 0.1, 0.2, 0.1]))
    assert found.verdict == "cannot tell"
    assert "a single seed needs 6 tasks to tell" in found.sentence


def test_two_seeds_of_one_configuration_show_no_difference() -> None:
    # Better on every task, but of the same method: that is luck.
    tasks = {"first": {0: [0.9] * 8}, "second": {1: [0.8, 0.81, 0.8, 0.82, 0.8, 0.7, 0.8, 0.79]}}
    first, second = (
        trials(n, {seed: float(np.mean(row)) for seed, row in t.items()}, tasks=())
        for n, t in tasks.items()
    )
    method = {"method": {"name": "tem"}}
    a = replace(first, tasks=tasks["first"], config={**first.config, **method, "seeds": [0]})
    b = replace(second, tasks=tasks["second"], config={**second.config, **method, "seeds": [1]})
    found = compare_trials(a, b)
    assert found.p_value < 0.05
    assert found.verdict == "no difference"
    assert found.sentence.endswith("points, both of one configuration: chance alone.")
    # With another method, or another version of the code, it is not that.
    other = replace(b, config={**b.config, "method": {"name": "ewc"}})
    assert compare_trials(a, other).verdict == "better"
    assert compare_trials(a, replace(b, versions={"evergraph": "0.2"})).verdict == "better"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": {"dataset": {"name": "cora"}}}, "dataset is 'rings' for a and 'cora' for b"),
        ({"config": {"dataset": {"name": "rings", "seed": 2}}}, "dataset.seed is None for a and 2"),
        ({"stream": {"order": "shuffled"}}, "stream.order is 'label' for a and 'shuffled' for b"),
        ({"stream": {"split_seed": 1}}, "stream.split_seed is 0 for a and 1 for b"),
        ({"stream": {"split": [0.8, 0.1, 0.1]}}, "stream.split is"),
        ({"stream": {"edges": "all"}}, "stream.edges is 'within' for a and 'all' for b"),
        ({"stream": {"setting": "task-il"}}, "stream.setting is"),
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
def test_other_questions_are_not_compared(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ResultsError, match=f"^a and b cannot be compared: {said}"):
        compare_trials(trials("a", [0.8, 0.9]), trials("b", [0.8, 0.9], **change))


def test_another_graph_of_the_same_name_is_not_compared_if_it_is_known() -> None:
    a, b = (trials(n, [0.8, 0.9], facts={"nodes": x}) for n, x in (("a", 10), ("b", 20)))
    with pytest.raises(ResultsError, match="the number of nodes is 10 for a and 20 for b"):
        compare_trials(a, b)
    assert compare_trials(a, replace(b, facts={})).verdict == "no difference"


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (trials("a", [0.8]), trials("b", [0.7]), "their results on each task are not kept"),
        (trials("a", [], [0.8]), trials("b", [], [0.7]), "there is a single task"),
        (
            trials("a", {0: 0.8}, stream={"split_seed": "run"}),
            trials("b", {1: 0.8}, stream={"split_seed": "run"}),
            "by seeds 0 and 1, and not by tasks since every seed has a split of its own",
        ),
    ],
)
def test_too_little_in_common_is_refused(ours: Trials, theirs: Trials, said: str) -> None:
    with pytest.raises(ResultsError, match=said):
        compare_trials(ours, theirs)


scores = st.integers(0, 100).map(lambda n: n / 100)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(scores, scores), min_size=2, max_size=5), st.booleans())
def test_swapping_both_turns_the_verdict(drawn: list[tuple[float, float]], apart: bool) -> None:
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
            trials("b", [0.5, 0.5], dataset=f"d{place}"),
        )
        for place, gap in enumerate(gaps)
    ]


def test_over_datasets_wilcoxon_decides() -> None:
    (over,) = over_datasets(on_datasets([0.1, 0.2, 0.3, 0.15, 0.05, 0.07]))
    assert over.sentence == (
        "a is better than b over 6 datasets, class-il: ahead on 6 and behind on 0 (Wilcoxon's "
        "signed ranks, p = 0.031)."
    )
    (few,) = over_datasets(on_datasets([0.1, 0.2, 0.3]))
    assert few.sentence == (
        "cannot tell over 3 datasets, class-il: a is ahead of b on 3 and behind on 0 (too few "
        "datasets for Wilcoxon's test, which takes 6)."
    )
    assert over_datasets(on_datasets([0.1])) == []


def test_many_comparisons_are_corrected() -> None:
    alone = on_datasets([0.02] * 4)
    together = corrected(alone)
    assert [found.verdict for found in alone] == ["better"] * 4
    assert [found.verdict for found in together] == ["no difference"] * 4
    assert together[0].corrected_p == pytest.approx(4 * alone[0].p_value)
    assert "by Holm" in together[0].sentence
    assert corrected(alone[:1]) == alone[:1]


def test_a_protocol_says_how_results_are_read() -> None:
    result = {"headline": {"testing": "global", "averaging": "plain"}}
    assert way_of(result) == ("global", "plain")
    assert way_of(result, "local", "balanced") == ("local", "balanced")
    assert way_of({"metric": {"key": "r2"}}) == ("local", "r2")


def test_results_in_memory_are_compared() -> None:
    small = {
        "setting": "class-il", "seeds": 2, "epochs": 1, "device": "cpu",
        "dataset__nodes": 80, "dataset__classes": 4, "dataset__features": 8,
    }  # fmt: skip
    a, b = (eg.run("synthetic", method=method, **small) for method in ("slda", "finetune"))
    found = eg.compare(a, b)
    assert found.difference.mean == pytest.approx(a.average_accuracy() - b.average_accuracy())
    assert f"{100 * a.average_accuracy():.1f} against {100 * b.average_accuracy():.1f}" in str(
        found
    )
    assert repr(eg.compare(a, a)).startswith("no difference: slda (first) and slda (second) on ")
    globally = eg.compare(a, b, testing="global", averaging="plain")
    assert "tested globally, plain accuracy" in globally.sentence
    with pytest.raises(ConfigurationError, match="averaging must be one of balanced, plain"):
        eg.compare(a, b, averaging="macro_f1")
    with pytest.raises(ConfigurationError, match="unknown testing 'here'"):
        eg.compare(a, b, testing="here")
