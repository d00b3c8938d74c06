"""The most that can be had for a price, by hand."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evergraph.reports import collect
from evergraph.reports.runs import grouped
from evergraph.reports.units import envelope, families

RUNS = [(50.0, 0.6), (400.0, 0.9), (100.0, 0.55), (200.0, 0.9)]


def test_by_hand():
    assert envelope(RUNS) == [(50.0, 0.6), (200.0, 0.9)]  # 100 is worse than 50, 400 no better
    assert envelope([]) == []


points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=10)


@given(points=points, budget=st.integers(-1, 7))
def test_the_envelope_rises_and_says_what_all_points_say(points, budget):
    rising = envelope(points)
    assert set(rising) <= set(points)
    for (cost, value), (dearer, better) in pairwise(rising):
        assert cost < dearer
        assert value < better
    best = [
        max((v for cost, v in each if cost <= budget), default=None) for each in (rising, points)
    ]
    assert best[0] == best[1]


def test_runs_of_a_family_share_the_name_before_the_sign(tmp_path, write_run):
    for name, accuracy in (("tem@budget=50", 0.5), ("tem@budget=400", 0.75), ("ssm", 0.625)):
        write_run(tmp_path, name, [accuracy])
    (group,) = grouped(collect(tmp_path), tmp_path)
    named = {name: [entry.name for entry in runs] for name, runs in families(group).items()}
    assert named == {"tem": ["tem@budget=400", "tem@budget=50"], "ssm": ["ssm"]}
