"""What every registered kind of targets keeps to, and that nothing else tells kinds apart."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

import evergraph
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.targets import Numbers, Target, target_kinds, target_of
from evergraph.online import ContinualNodeClassifier
from evergraph.online.identifiers import TargetTable

SOURCES = Path(evergraph.__file__).parent
EXAMPLES = {
    "class": ["x", "y", 7, "x"],
    "labels": [["a", "b"], [], ["b"], ["b", "a"]],
    "numbers": [1.5, -2.0, 3, 1.5],
    "stars": [1, 5, 3, 1],
}
WRONG = {"class": 1.5, "labels": "a", "numbers": "1.5", "stars": 6}


class Stars(Numbers):
    """Ordered classes, as a plug-in would add them: learned as a number, answered as a star."""

    name = "stars"
    described = "stars"

    def check(self, value: object) -> None:
        if type(value) is not int or not 1 <= value <= 5:
            raise DataError(f"stars must be an integer from 1 to 5, not {value!r}")

    def are_sound(self, values):
        return False

    def decide(self, scores):
        return scores.round().clip(1, 5)


@pytest.fixture(params=sorted(EXAMPLES))
def target(request, monkeypatch) -> Target:
    monkeypatch.setattr(target_kinds, "_classes", dict(target_kinds._classes))
    target_kinds.register(Stars)
    return target_of(request.param)


def test_every_registered_kind_has_examples():
    assert set(target_kinds.names()) <= EXAMPLES.keys()


def test_targets_are_checked_read_and_equal_if_their_keys_are(target):
    values = EXAMPLES[target.name]
    target.check_all(values)
    assert [target.read(value) for value in values] == values
    assert target.read(None) is target.read(float("nan")) is None
    keys = [target.key(value) for value in values]
    assert len(set(keys)) == 3
    assert keys[0] == keys[3]
    assert all(isinstance(target.cell(key), str | int | float) for key in keys)
    for check in (target.check, lambda value: target.check_all([*values, value])):
        with pytest.raises(DataError, match="must be"):
            check(WRONG[target.name])


def test_a_table_of_targets_is_the_same_after_it_was_stored(target):
    table, again = TargetTable(), TargetTable()
    keys = list(dict.fromkeys(map(target.key, EXAMPLES[target.name])))
    table.add(keys)
    again.restore(table.state())
    assert list(again) == list(table) == keys
    assert again.positions(keys[::-1]).tolist() == [2, 1, 0]
    assert again.positions([]).dtype == torch.int64  # though nothing says so
    assert keys[1] in again
    assert target.key(EXAMPLES[target.name][1]) == again.at(1)


def test_what_is_decided_is_what_is_answered_tallied_and_led_with(target):
    scores = np.array([[0.5, 2.0, -1.0], [4.0, -3.0, 0.25]], np.float32)[
        :, : 3 if target.is_named else 1
    ]
    decided = target.decide(scores)
    assert np.array_equal(decided, target.decide(torch.from_numpy(scores)).numpy())
    found = target.answers(["u", "v"], scores, ["x", "y", "z"], every=False)
    assert [type(one) for one in found] == [target.prediction] * 2
    assert [list(vars(one))[:2] for one in found] == [["id", target.column]] * 2
    predicted = [getattr(one, target.column) for one in found]
    assert (
        predicted
        == {
            "class": ["y", "x"],
            "labels": [["x", "y"], ["x", "z"]],
            "numbers": [0.5, 4.0],
            "stars": [1.0, 4.0],
        }[target.name]
    )
    target.check_all([*predicted] if target.is_named else [])
    lead = target.leading(torch.from_numpy(scores)[0], 2)
    assert int(lead[0]) == int(np.argmax(scores[0]))
    shares = target.shares(scores)
    assert shares.shape == scores.shape
    doubt = target.uncertainty(torch.from_numpy(shares))
    assert bool(((doubt >= 0) & (doubt <= 1)).all())
    given = torch.from_numpy(np.asarray(decided))
    tally = target.tally(given, given if target.is_class else given.float())
    assert len(tally.asked) == 2
    assert float(tally.right.sum() / tally.asked.sum()) == (0.0 if target.rises else 1.0)
    assert target.main in target.rows
    same = target.compared(predicted, predicted)
    assert target.rows[target.score](*same) == 1.0


def test_a_live_model_learns_forgets_stores_and_answers_any_kind(target, tmp_path):
    values = {
        "class": ["x", "y"],
        "labels": [["a"], ["a", "b"]],
        "numbers": [1.0, 3.0],
        "stars": [2, 5],
    }[target.name]
    sides, ids = torch.arange(12) % 2, [f"n{n}" for n in range(12)]
    rows = torch.eye(2)[sides] + 0.01 * torch.arange(12)[:, None]
    labels = [values[side] if n < 10 else None for n, side in enumerate(sides.tolist())]
    given = {"targets": target.name, "width": 16}
    model = ContinualNodeClassifier(**given).partial_fit(ids, rows, labels)
    with ContinualNodeClassifier.open(tmp_path / "model", **given) as stored:
        stored.partial_fit(ids, rows, labels)
        stored.forget(["n0"])
    with ContinualNodeClassifier.open(tmp_path / "model") as again:
        assert again.targets == target.name
        found = [list(map(str, np.atleast_1d(one))) for one in again.predict(["n10", "n11"])]
        assert again.learner_.status().metric == target.running
    if target.is_named:
        assert found == [list(map(str, np.atleast_1d(value))) for value in values]
    else:
        assert np.allclose(np.array(found, float)[:, 0], values, atol=0.2)
    assert model.score(ids[:10], labels[:10]) > 0.9
    why = model.learner_.answer(["n10"], every_class=True)
    assert isinstance(why.predictions[0], target.prediction)


@pytest.mark.parametrize("kind", ["class", "labels", "numbers"])
def test_an_explanation_adds_up_and_names_the_column_that_tells(kind):
    pd = pytest.importorskip("pandas")
    draw = np.random.default_rng(0)
    amount = np.repeat([1.0, 9.0], 20) + 0.1 * draw.normal(size=40)
    high = amount > 5
    rows = pd.DataFrame({"amount": amount, "noise": draw.normal(size=40)})
    labels = {
        "class": np.where(high, "y", "x").tolist(),
        "labels": [["y", "z"] if one else ["x"] for one in high],
        "numbers": amount.tolist(),
    }[kind]
    model = ContinualNodeClassifier(targets=kind, width=32)
    model.partial_fit([f"n{n}" for n in range(40)], rows, labels, [("n38", "n39")])
    why = model.explain("n39", top=2, limit=40)
    assert why.classes == {"class": ("y", "x"), "labels": why.classes, "numbers": ()}[kind]
    assert (why.probabilities == ()) == (kind == "numbers")
    sums = np.sum([voice.says for voice in why.voices], axis=0) + why.others + why.rest
    assert np.allclose(sums, why.scores, atol=1e-4)
    assert {one.column for one in why.columns} == {"amount", "noise"}
    assert why.columns[0].column == "amount"
    if kind == "class":
        first, second = why.columns[0].says
        assert first > second


def test_an_argument_that_reaches_no_learner_is_refused(tmp_path):
    from evergraph.online.folder.learner_folder import parameters_of_model

    made = ContinualNodeClassifier(targets="numbers")._made().parameters
    assert parameters_of_model(made, {"targets": "numbers"})["head"]["kind"] == "numbers"
    with pytest.raises(ConfigurationError, match="'half_life' reaches no learner"):
        parameters_of_model(made, {"half_life": 3})
    with pytest.raises(ConfigurationError, match="targets"):
        ContinualNodeClassifier.open(tmp_path / "model", targets="moods")


def told_apart(source: str) -> list[int]:
    """Return the lines of comparisons of something called kind or targets with a kind's name."""
    kinds = {"class", "labels", "numbers"}
    lines = []
    told = any(f'"{kind}"' in source for kind in kinds)  # else there is nothing to parse
    for node in ast.walk(ast.parse(source if told else "")):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            named = {c.value for p in parts for c in ast.walk(p) if isinstance(c, ast.Constant)}
            words = {getattr(n, "id", getattr(n, "attr", "")) for p in parts for n in ast.walk(p)}
            if named & kinds and words & {"kind", "targets", "target"}:
                lines.append(node.lineno)
    return lines


def test_only_a_target_knows_its_kind():
    assert told_apart('x.kind == "numbers"\nkind in ("class", "labels")\nby == "class"') == [1, 2]
    found = {
        f"{path.relative_to(SOURCES)}:{line}"
        for path in SOURCES.rglob("*.py")
        if "targets" not in path.relative_to(SOURCES).parts
        for line in told_apart(path.read_text("utf-8"))
    }
    assert found == set()
