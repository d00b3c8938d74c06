"""What becomes of one column, by hand."""

import math
from datetime import date, datetime, timedelta
from zlib import crc32

import pyarrow as pa
import pytest
import torch

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.graphs import Graph
from evergraph.online.classifier import ContinualNodeClassifier
from evergraph.tables import Columns, Encoder
from evergraph.tables.fitting import fit_scheme
from evergraph.tables.hashed import BUCKETS, CategoryEncoder, ListEncoder, TextEncoder, signs
from evergraph.tables.measured import BooleanEncoder, DateEncoder, NumberEncoder
from evergraph.tables.scheme import propagated


def test_numbers_are_scaled_by_quartiles_and_cut():
    # Of 0, 10, 20, 30, 40: median 20, quartiles 10 and 30.
    encoder = NumberEncoder.fit(pa.array([0, 10, 20, 30, 40]), "f")
    assert (encoder.median, encoder.scale, encoder.flag) == (20, 20, False)
    found = encoder.encode(pa.array(["50", "NA", " 20 ", "-1e9"]), "f")
    assert found.matrix.tolist() == [[1.5], [0], [0], [-5]]
    assert found.gaps.tolist() == [False, True, False, False]
    # Where the quartiles meet, the deviation scales: mean 2, variance 30 / 6.
    encoder = NumberEncoder.fit(pa.array([1, 1, 1, 1, 1, 7]), "f")
    assert (encoder.median, encoder.scale) == (1, pytest.approx(math.sqrt(5)))
    assert NumberEncoder.fit(pa.array([3, 3]), "f") == NumberEncoder(3, 3, flag=False)
    # Zeros and ones stay as they are, and a gap of the first table makes a flag.
    encoder = NumberEncoder.fit(pa.array([0, 1, 0, None]), "f")
    found = encoder.encode(pa.array([1, 0, 3, None]), "f")
    assert found.matrix.tolist() == [[1, 0], [0, 0], [3, 0], [0, 1]]
    flagged = BooleanEncoder.fit(pa.array(["yes", "", "no"]), "f")
    found = flagged.encode(pa.array([True, None, False]), "f")
    assert found.matrix.tolist() == [[1, 0], [0, 1], [0, 0]]


def test_a_date_is_time_and_its_place_in_year_and_week():
    encoder = DateEncoder.fit(pa.array(["1970-01-01", "1970-01-08", "1970-01-15"]), "f")
    assert (encoder.median, encoder.scale) == (7 * 86_400, 7 * 86_400)
    day = 7 / 365.2425  # of the year
    expected = [0, math.sin(2 * math.pi * day), math.cos(2 * math.pi * day), 0, 1]
    for texts in (["1970-01-08"], ["1970-01-08T00:00:00Z"]):
        found = encoder.encode(pa.array(texts), "f").matrix[0]
        assert found == pytest.approx(expected, abs=1e-6)
    typed = pa.array([date(1970, 1, 8)])
    assert encoder.encode(typed, "f").matrix[0] == pytest.approx(expected, abs=1e-6)


def test_a_timestamp_has_its_place_in_the_day_where_times_of_day_differ():
    encoder = DateEncoder.fit(pa.array(["1970-01-01T00:00", "1970-01-08T06:00", None]), "f")
    six = encoder.encode(pa.array(["1970-01-15T06:00", None]), "f").matrix
    assert six.shape == (2, encoder.width) == (2, 8)
    assert six[0, 5:] == pytest.approx([1, 0, 0], abs=1e-6)  # a quarter of the day
    assert six[1].tolist() == [0] * 7 + [1]
    # Noon on every day says nothing of the day; a scheme of before has no time of day.
    noon = DateEncoder.fit(pa.array(["1970-01-01T12:00", "1970-01-08T12:00"]), "f")
    assert noon == DateEncoder(noon.median, noon.scale, flag=False)
    assert noon.width == 5


def test_day_or_night_is_learned_from_one_timestamp():
    hours = [(37 * row) % 24 + 24 * (row % 91) for row in range(240)]
    seen = [datetime(2024, 3, 1) + timedelta(hours=hour) for hour in hours]
    label = ["day" if 6 <= at.hour < 18 else "night" for at in seen]
    frame = pa.table({"id": list(range(240)), "label": [*label[:160], *[None] * 80], "seen": seen})
    model = ContinualNodeClassifier(width=64).partial_fit(frame)
    assert model.score(range(160, 240), label[160:]) > 0.9


def test_categories_have_vectors_of_length_one_and_lists_their_mean():
    encoder = CategoryEncoder.fit(pa.array(["red", "green", None]), "f")
    red, none, seven = encoder.encode(pa.array(["red", "", "7"]), "f").matrix
    assert red @ red == pytest.approx(1)
    assert (red == signs(["red"], 8)[0]).all()
    assert not none.any()
    assert (encoder.encode(pa.array([7.0]), "f").matrix[0] == seven).all()  # as pandas has gaps
    items = ListEncoder.fit(pa.array([["red", "green"]]), "f").encode(
        pa.array(["red;green", '["red", "green"]', "['green', 'red']", ""]), "f"
    )
    mean = signs(["red", "green"], 8).mean(0)
    for row in items.matrix[:3]:
        assert row == pytest.approx(mean)
    assert items.gaps.tolist() == [False, False, False, True]


def test_words_by_hand():
    encoder = TextEncoder.fit(pa.array(["red wine", "red car", None]), "f", Columns(text_width=64))
    # Two texts; red is in both, wine in one: idf 1 + ln(3/3) and 1 + ln(3/2).
    red, wine = 1.0, 1 + math.log(3 / 2)
    length = math.hypot(2 * red, wine)
    vectors = signs([str(crc32(word.encode()) % BUCKETS) for word in ("red", "wine")], 64)
    found = encoder.encode(pa.array(["Wine: red, RED!"]), "f").matrix[0]
    assert found == pytest.approx((2 * red * vectors[0] + wine * vectors[1]) / length, abs=1e-6)


def test_gaps_from_neighbours_by_hand():
    # A path a-b-c-d with a = 0 and d = 3 known: the means settle at b = 1 and c = 2.
    graph = Graph.from_edges(
        torch.tensor([[0, 1, 2], [1, 2, 3]]),
        features=torch.zeros(5, 1),
        labels=torch.zeros(5, dtype=torch.int64),
    )
    values = torch.tensor([[0.0], [9.0], [9.0], [3.0], [9.0]])
    known = torch.tensor([[True], [False], [False], [True], [False]])
    found = propagated(graph, values, known).flatten()
    torch.testing.assert_close(found, torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0]), atol=1e-5, rtol=0)


def test_an_encoder_of_ones_own():
    lengths = Encoder.named("length", version="1", of=lambda texts: [[len(t), 1] for t in texts])
    scheme = fit_scheme(pa.table({"f": ["ab", None]}), ["f"], Columns(kinds={"f": lengths}))
    assert scheme.encode(pa.table({"f": ["abc", ""]})).tolist() == [[3, 1], [0, 0]]
    kept = scheme.to_json()
    assert type(scheme).from_json(kept, [lengths]) == scheme
    for others in ([], [Encoder.named("length", version="2", of=len)]):
        with pytest.raises(ConfigurationError, match="encoder 'length' of version '1', which is"):
            type(scheme).from_json(kept, others)
    wrong = Encoder.named("flat", version="1", of=lambda texts: [1.0 for _ in texts])
    with pytest.raises(DataError, match=r"'flat' returned an array of shape \(1,\) for 1 texts"):
        fit_scheme(pa.table({"f": ["ab"]}), ["f"], Columns(kinds={"f": wrong}))


@pytest.mark.parametrize("text", ["[" * 9_000 + "]" * 9_000, "[" + "-" * 9_000 + "1]"])
def test_a_list_nested_too_deeply_is_a_text_of_one_item(text):
    encoder = ListEncoder.fit(pa.array(["a;b"]), "tags")
    assert encoder.encode(pa.array([text]), "tags").new == {text: 0}


def test_values_too_far_apart_for_a_scale_are_refused():
    apart = pa.table({"size": [-1.7e308, 1.7e308, 1.6e308]})
    with pytest.raises(DataError, match=r"column 'size' has values up to 1.7e\+308"):
        fit_scheme(apart, ["size"])
