"""Lines of JSON into a learner: batches, mistakes, streams given again, columns of any kind."""

import io
import json
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.cli.learner_target import _InFolder
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.online import line_stream
from evergraph.online.codecs.json_lines import LineBatch, delta_of_lines, parsed_line
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import FusedHead, TargetHead
from evergraph.online.learner import OnlineLearner
from mixed_tables import mixed_edges, mixed_rows, write_mixed
from small_learner import learner

pytestmark = pytest.mark.usefixtures("narrow_heads")
# Time stands still, so that no batch is sent because it is late.
LineStream = partial(line_stream.LineStream, clock=lambda: 0.0)
START: list[dict[str, Any]] = [
    {"node": "a", "features": [1, 0], "label": "x"},
    {"node": "b", "features": [0, 1], "label": "y"},
    {"node": "c", "features": [1, 1]},
    {"edge": ["a", "c"], "weight": 2.0},
    {"edge": ["b", "c"], "weight": 0.5},
]


class Kept:
    """A learner with keys, in memory; notes the deltas it was given."""

    columns = None

    def __init__(self, head: FusedHead | None = None, patience: int = 1) -> None:
        self.learner = learner(patience=patience) if head is None else OnlineLearner(head=head)
        self.keys: dict[str, Delta] = {}

    def submit(self, delta: Delta) -> dict[str, Any]:
        assert delta.key is not None
        assert delta.key not in self.keys
        done = self.learner.apply(delta)
        self.keys[delta.key] = delta
        return asdict(done)

    def upsert(self, delta: Delta) -> dict[str, Any]:
        return asdict(self.learner.apply(self.learner.only_new(delta)[0]))

    def last_key(self, prefix: str) -> str | None:
        return next((key for key in reversed(self.keys) if key.startswith(prefix)), None)


def written(lines: list[dict[str, Any]]) -> list[bytes | None]:
    return [json.dumps(line).encode() for line in lines]


def test_lines_become_one_delta_by_hand():
    kept = Kept()
    stream = LineStream(kept)
    stream.take_in(written(START))
    (delta,) = kept.keys.values()
    assert (delta.nodes, delta.labels) == (["a", "b", "c"], ["x", "y", None])
    assert delta.features.tolist() == [[1, 0], [0, 1], [1, 1]]
    assert (delta.edges, delta.weights) == ([("a", "c"), ("b", "c")], [2.0, 0.5])
    assert (stream.lines, stream.known, stream.deltas, stream.new_nodes) == (5, 0, 1, 3)


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_the_weight_of_an_edge_follows_from_all_lines_so_far_whatever_the_batches(batch):
    kept = Kept()
    lines = [
        *START,  # a - c weighs 2, b - c 0.5
        {"edge": ["c", "a"], "weight": 40},
        {"edge": ["b", "c"]},  # 1
        {"remove_edge": ["b", "c"]},
        {"edge": ["b", "c"], "weight": 3},  # begins anew
        {"edge": ["a", "b"], "weight": 5},
        {"forget": "b"},
        {"node": "b", "features": [0, 1]},
        {"edge": ["a", "b"], "weight": 9},  # begins anew as well
        {"edge": ["a", "c"], "weight": 0},  # adds nothing
    ]

    def weights(count: int) -> list[float]:
        # Begun again with more lines, it resumes.
        stream = LineStream(kept, batch=batch, prefix="p", repeated="sum")
        stream.take_in(written(lines[:count]))
        (a, b, c), graph = kept.learner._ids.where("abc"), kept.learner._knowledge.graph
        return graph.weights_of(torch.tensor([a, b, a]), torch.tensor([c, c, b])).tolist()

    assert weights(7) == [42, 1.5, 0]
    assert weights(10) == [42, 3, 5]
    assert weights(14) == [42, 0, 9]
    with pytest.raises(DataError, match="line 6: lists the edge of line 4 again: expected each"):
        LineStream(Kept(), repeated="refuse").take_in(written(lines))
    with pytest.raises(ConfigurationError, match="repeated must be 'last' if known lines are"):
        LineStream(kept, skip_known=True, repeated="sum")


def test_a_line_that_undoes_another_waits_for_the_next_delta():
    kept = Kept()
    changes = [
        {"remove_edge": ["a", "c"]},
        {"edge": ["c", "a"]},  # after it went
        {"update": "a", "features": [0, 3]},
        {"update": "a", "features": [0, 4]},  # once more
        {"label": ["c", "y"]},
        {"forget": "b"},
        {"node": "b", "features": [5, 5]},  # after it was forgotten
    ]
    LineStream(kept).take_in(written(START + changes))
    got = [repr(delta) for delta in kept.keys.values()]
    assert got == [
        "Delta(3 nodes, 2 edges, 1 removed edges)",
        "Delta(1 edges, 1 updated)",
        "Delta(1 updated, 1 late labels, 1 forgotten)",
        "Delta(1 nodes)",
    ]
    assert kept.learner.status().nodes == 3


NAMES = st.sampled_from("abc")
OPERATIONS = st.one_of(
    st.tuples(st.just("edge"), NAMES, NAMES, st.sampled_from([None, 0.5, 2.0])),
    st.tuples(st.just("remove_edge"), NAMES, NAMES),
    st.tuples(st.just("update"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("label"), NAMES, st.sampled_from("xyz")),
    st.tuples(st.just("forget"), NAMES),
    st.tuples(st.just("node"), NAMES, st.integers(1, 3)),
)


def said(operation: tuple[Any, ...]) -> dict[str, Any]:
    name, node, *rest = operation
    if name == "edge":
        return {"edge": [node, rest[0]]} | ({} if rest[1] is None else {"weight": rest[1]})
    if name in ("remove_edge", "label"):
        return {name: [node, rest[0]]}
    return {name: node} | ({"features": [rest[0], 1.0]} if rest else {})


def possible(lines: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], OnlineLearner]:
    """Return the lines that can be taken in one by one, and the learner that took them."""
    one, taken = learner(patience=9), []
    for number, line in enumerate(lines, start=1):
        try:
            one.apply(delta_of_lines([parsed_line(json.dumps(line).encode(), number)]))
        except DataError:
            continue
        taken.append(line)
    return taken, one


@pytest.mark.usefixtures("patient")
@settings(max_examples=6)
@given(st.lists(OPERATIONS, max_size=6), st.integers(1, 9))
def test_batches_give_what_single_lines_give(drawn, batch):
    taken, one = possible(START + [said(operation) for operation in drawn])
    kept = Kept(patience=9)
    LineStream(kept, batch=batch).take_in(written(taken))
    other = kept.learner
    assert (one.status().nodes, one.status().edges) == (other.status().nodes, other.status().edges)
    ids = sorted(one.every_id())
    assert ids == sorted(other.every_id())
    if ids:
        assert torch.allclose(one.embed(ids), other.embed(ids), atol=1e-5, rtol=0)


@pytest.mark.parametrize("first", [1, 4, 6])
def test_a_stream_given_again_is_taken_in_once(first, tmp_path):
    lines = [*START, {"label": ["c", "x"]}]
    with LearnerFolder.open(tmp_path / "l", make=learner) as folder:
        target = _InFolder(folder)
        LineStream(target, batch=2).take_in(written(lines)[:first])
        again = LineStream(target, batch=3)  # other batches
        again.take_in(written(lines))
        assert (again.lines, again.known) == (6, first)
        assert folder.learner.status().edges == 2
        last = LineStream(target)
        last.take_in(written(lines))
        assert (last.known, last.deltas) == (6, 0)
    with LearnerFolder.open(tmp_path / "l", make=learner) as folder:  # another process
        late = LineStream(_InFolder(folder))
        late.take_in(written([*lines, {"forget": "a"}]))
        assert (late.known, late.deltas, folder.learner.status().nodes) == (6, 1, 2)


def test_another_stream_with_the_same_name_is_refused():
    kept = Kept()
    LineStream(kept, prefix="p").take_in(written(START))
    other = [*START[:4], {"edge": ["b", "c"], "weight": 9}, {"forget": "a"}]
    with pytest.raises(DataError, match="line 5: the lines up to here differ from those"):
        LineStream(kept, prefix="p").take_in(written(other))
    with pytest.raises(DataError, match="line 2 is the last, but 5 lines were ingested"):
        LineStream(kept, prefix="p").take_in(written(START[:2]))
    assert len(kept.keys) == 1
    with pytest.raises(ConfigurationError, match="key_prefix must have 1 to 100"):
        LineStream(kept, prefix="")


def test_a_queue_may_deliver_lines_again():
    kept = Kept()
    LineStream(kept, skip_known=True).take_in(written(START))
    again = LineStream(kept, skip_known=True)
    again.take_in(written([*START[2:], {"edge": ["a", "b"]}]))  # from the middle, and one more
    assert (again.known, again.new_nodes, kept.keys) == (0, 0, {})
    assert (kept.learner.status().nodes, kept.learner.status().edges) == (3, 3)
    with pytest.raises(DataError, match="line 1: node 'c' is in the graph already"):
        LineStream(kept).take_in(written(START[2:]))
    with pytest.raises(ConfigurationError, match="key_prefix must not be given if known"):
        LineStream(kept, skip_known=True, prefix="p")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"{", "line 4: is not JSON"),
        (b"[" * 99_999, "line 4: is not JSON"),
        (b"[1]", "line 4: must be one JSON object, not list"),
        (b'{"nod": 1}', "line 4: has no operation: expected one of node, edge"),
        (b'{"edge": ["a"]}', r"line 4: edge must be a list of two, not \['a'\]"),
        (b'{"edge": ["a", "b"], "wight": 1}', "line 4: edge takes no 'wight'"),
        (b'{"edge": ["a", "z"]}', "line 4: edge 0 joins 'a' and 'z', but node 'z' is not"),
        (b'{"node": 1.5, "features": [1, 2]}', "line 4: id of a node must be text or an integer"),
        (b'{"node": "a", "features": [1, 2]}', "line 4: node 'a' is in the graph already"),
        (b'{"node": "d", "features": [1]}', "line 4: features have 1 columns, but .* have 2"),
        (b'{"node": "d", "features": [1, NaN]}', "line 4: features must be finite .*, not nan"),
        (b'{"node": "d", "features": [1, "2"]}', "line 4: features must be finite .*, not '2'"),
        (b'{"node": "d", "features": [1, 1%s]}' % (b"0" * 400), "line 4: .* must be finite"),
        (b'{"node": "d", "features": [1, 1%s]}' % (b"0" * 30), "line 4: .* column 1 holds 1.00"),
        (b'{"node": "d", "features": [1, 2], "type": true}', "line 4: .* not 'type' beside them"),
        (b'{"update": "a", "features": [1, 2], "label": "x"}', "line 4: update takes no 'label'"),
        (b'{"update": "a", "features": [1, 2], "type": "x"}', "line 4: update takes no 'type'"),
        (b'{"label": ["a", null]}', "line 4: label of node 'a' is missing"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_stay(bad, why):
    kept = Kept()
    after = json.dumps({"node": "z", "features": [1, 2]}).encode()
    with pytest.raises(DataError, match=why):
        LineStream(kept).take_in([*written(START)[:3], bad, after])
    assert kept.learner.every_id() == ["a", "b", "c"]


def test_age_closes_a_batch_and_no_line_is_read_while_a_delta_is_learned():
    now, read, kept = 0.0, [], Kept()

    def arriving():
        nonlocal now
        for line in written(START):
            read.append(len(kept.keys))  # how many deltas were learned before it
            yield line
            now += 0.9
            yield None  # nothing at the moment

    LineStream(kept, every=1.5, clock=lambda: now).take_in(arriving())
    assert [len(d.nodes) + len(d.edges) for d in kept.keys.values()] == [2, 2, 1]
    assert read == [0, 0, 1, 1, 2]


def test_columns_keep_the_order_of_the_first_line_and_weights_stay_together():
    kept = Kept()
    lines = [{"node": 1, "q": 1, "p": 2, "label": 0}, {"p": 4, "node": 2, "q": 3}]
    LineStream(kept).take_in(written(lines))
    (delta,) = kept.keys.values()
    assert delta.features.tolist() == [[1, 2], [3, 4]]
    batch = LineBatch()
    batch.add(parsed_line(b'{"edge": ["a", "b"], "weight": 1}', 1))
    assert not batch.fits(parsed_line(b'{"edge": ["a", "c"]}', 2))  # it keeps the weight it has
    assert batch.fits(parsed_line(b'{"edge": ["a", "c"], "weight": 0}', 3))


BEGIN, END = 12, 18


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    """Return nodes, without what is not known, and edges as lines."""
    nodes = [{"node": row.pop("id"), **row} for row in mixed_rows(start, stop)]
    known = [{name: value for name, value in row.items() if value is not None} for row in nodes]
    return [*known, *({"edge": list(pair)} for pair in mixed_edges(start, stop))]


@pytest.fixture
def begun(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what takes lines into a folder that began with a mixed table."""

    def take(folder: str, lines: list[dict[str, Any]], *options: str, expect: int = 0) -> str:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        err = call("ingest", folder, "-", *options, expect=expect)[1]
        return err

    nodes, edges = write_mixed(tmp_path, 0, BEGIN)
    call("ingest", "learner", "--nodes", str(nodes), "--edges", str(edges))
    return take


def test_lines_are_read_as_the_first_table_was(begun, call, tmp_path):
    shutil.copytree("learner", "tables")
    begun("learner", rows(BEGIN, END), "--batch", "4")
    nodes, edges = write_mixed(tmp_path, BEGIN, END, "later")
    call("ingest", "tables", "--nodes", str(nodes), "--edges", str(edges))
    ids = [f"n{node}" for node in range(END)]
    found = []
    for name in ("learner", "tables"):
        with LearnerFolder.open(name, readonly=True) as folder:
            found.append(folder.learner.embed(ids))
    assert torch.allclose(*found, atol=1e-5, rtol=0)


@pytest.mark.parametrize("line", [{"node": "new", "label": "x"}, {"update": "n1"}])
def test_a_line_without_columns_is_refused(begun, line):
    assert "line 1: has no features: expected " in begun("learner", [line], expect=2)


def test_a_column_of_the_first_table_stays_a_feature_where_no_line_has_a_label(begun):
    lines = [{"node": node, "target": node % 7, "size": node % 5} for node in range(40)]
    begun("fresh", [line | {"label": f"class {line['size']}"} for line in lines])
    begun("fresh", [{"node": 90, "target": 1, "size": 2}])
    with LearnerFolder.open("fresh", readonly=True) as folder:
        assert folder.learner.status().nodes == 41


def test_that_time_is_left_out_is_said_once(begun):
    lines = [{"node": node, "time": node, "size": node % 5, "label": "x"} for node in range(40)]
    assert begun("fresh", lines, "--batch", "8").count("column 'time' is ignored") == 1


def test_lists_without_numbers_are_no_features():
    kept = Kept()
    LineStream(kept).take_in(written([{"node": "a", "features": [], "label": "x"}]))
    assert kept.learner.status().features == 1  # a column of ones


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": "high"}, "line 2: row 2 has 'high' in column 'score': expected a number"),
        ({"scores": 1}, "line 2: has a column 'scores' that the first table did not have"),
    ],
)
def test_a_mistake_names_its_line(begun, change, said):
    lines = [row for row in rows(BEGIN, BEGIN + 3) if "node" in row]
    lines[1] |= change
    err = begun("learner", lines, expect=2)
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1
    with LearnerFolder.open("learner", readonly=True) as folder:
        assert folder.learner.status().nodes == BEGIN + 1  # the line before it


def test_a_stream_settles_how_its_columns_are_read(begun):
    lines = [{"node": row.pop("id"), **row} for row in mixed_rows(0, 40)]
    begun("fresh", lines, "--column", "venue=category")
    with LearnerFolder.open("fresh", readonly=True) as folder:
        assert folder.columns.kinds["venue"] == "category"
        assert folder.columns.kinds["score"] == "number"


TYPED: list[dict[str, Any]] = [
    {"node": "a", "features": [1, 0], "label": "x", "type": "paper"},
    {"node": "b", "features": [0, 1], "label": "y", "type": "author"},
    {"node": "c", "features": [1, 1], "type": None},
    {"edge": ["a", "b"], "relation": "wrote"},
    {"edge": ["a", "c"], "relation": "cites"},
    {"edge": ["a", "b"], "relation": "cites"},
]


def test_types_and_relations_by_hand():
    lines = [parsed_line(text, number) for number, text in enumerate(written(TYPED), start=1)]
    delta = delta_of_lines(lines)
    assert delta.types == ["paper", "author", None]
    assert delta.relations == ["wrote", "cites", "cites"]
    number = parsed_line(b'{"node": "d", "type": 2, "size": 1}', 7)
    assert delta_of_lines([number]).features.tolist() == [[2, 1]]
    batch = LineBatch()
    batch.add(parsed_line(b'{"node": "e", "features": [1]}', 1))
    assert not batch.fits(lines[3])  # a learner that began without types takes no relations
    with pytest.raises(DataError, match="line 8: relation must be a text, not 3"):
        parsed_line(b'{"edge": ["a", "b"], "relation": 3}', 8)


@pytest.mark.parametrize(
    ("kind", "told", "wrong"), [("labels", ["x", "y"], 5), ("numbers", 2.5, [1])]
)
def test_labels_and_numbers_in_lines(kind, told, wrong):
    kept = Kept(TargetHead(kind=kind, width=16))
    lines = [
        {"node": "a", "features": [1, 0], "label": told},
        {"node": "b", "features": [0, 1]},
        {"label": ["b", told]},
    ]
    LineStream(kept, kind=kind).take_in(written(lines))
    assert kept.learner.status().labelled == 2
    with pytest.raises(DataError, match="line 1: "):
        LineStream(kept, kind=kind, prefix="p").take_in(written([{"label": ["b", wrong]}]))
