"""The script that builds the bundled dataset, on a WordNet of six synsets."""

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evergraph.core.errors import DataError
from evergraph.datasets import wordnet

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_wordnet.py"
REAL = [Path("/usr/share/wordnet"), Path("/tmp/wn/usr/share/wordnet")]

HEADER = "  1 A licence that asks to be kept,  \n  2   \n  3 with an empty line in it.  \n"
# Six synsets, each pointer type and count as the publisher writes them. Nodes are, in order:
# 0 and 1 (noun), 2 (verb), 3 and 4 (adj, the second a satellite), 5 (adv).
LINES = {
    "data.noun": [
        # sixteen words (hexadecimal 10): the pointer count comes after the sixteenth
        "00001740 03 n 10 " + "".join(f"w{i} 0 " for i in range(16)) + "002 ~ 00001930 n 0000 "
        '+ 00001740 v 0101 | the RED dog; "a dog\'s dog"  ',
        # a double of the hyponym above, the other way; and a pointer to itself
        "00001930 05 n 01 dog 0 002 @ 00001740 n 0000 + 00001930 n 0101 | a red-hot dog  ",
    ],
    "data.verb": [
        # the same offset as the first noun; the frames after the pointers are no pointers
        "00001740 29 v 01 run 0 001 + 00001740 n 0101 02 + 02 00 + 08 01 | the dog in red  "
    ],
    "data.adj": [
        "00001740 00 a 01 able 0 001 & 00002098 a 0000 | hot zebra  ",
        # a pointer that names the adjective before by the satellite's letter, and one to the noun
        "00002098 00 s 01 fit(p) 0 002 & 00001740 s 0000 = 00001930 n 0000 |  the  ",
    ],
    "data.adv": ["00001740 02 r 01 a_cappella 0 000 | without |  a pipe  "],
}
PAIRS = [[0, 1], [0, 2], [1, 4], [3, 4]]
LABELS = [3, 5, 29, 0, 0, 2]
# Glosses that have each word: dog 0 1 2, red 0 1 2, the 0 2 4, a 0 1 5; hot 1 3; others one.
VOCABULARY = ["a", "dog", "red", "the"]
COUNTS = [[1, 3, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_wordnet", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_wordnet"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lines in LINES.items():
        (tmp_path / name).write_text(HEADER + "\n".join(lines) + "\n")
    return tmp_path


def stored(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def test_nodes_come_in_the_order_of_the_files_with_those_as_labels(folder):
    keys = [synset.key for synset in script.read_synsets(folder)]
    assert keys == [
        ("n", "00001740"),
        ("n", "00001930"),
        ("v", "00001740"),
        ("a", "00001740"),
        ("a", "00002098"),
        ("r", "00001740"),
    ]
    assert stored(script.build(folder))["labels"].tolist() == LABELS


def test_a_pair_keeps_what_joins_it_and_which_way(folder):
    joined = script.joined_pairs(script.read_synsets(folder))
    assert [list(pair) for pair in joined] == PAIRS  # without doubles, directions or loops
    # 1 has the hypernym 0, which says so backwards as well; the derivation is said by both
    assert list(joined.values()) == [
        "hypernym<",
        "derived-from< derived-from>",
        "attribute<",
        "similar-to< similar-to>",
    ]
    arrays = stored(script.build(folder))
    lines = arrays["kinds"].tobytes().decode().split("\n")
    assert [lines[place] for place in arrays["edge_kinds"]] == list(joined.values())
    assert arrays["types"].tobytes() == b"nnvasr"


def test_words_are_runs_of_letters_in_lower_case(folder):
    synsets = script.read_synsets(folder)
    assert synsets[0].words == ("the", "red", "dog", "a", "dog", "s", "dog")
    assert synsets[1].words == ("a", "red", "hot", "dog")
    assert synsets[5].words == ("without", "a", "pipe")
    assert script.choose_vocabulary(synsets) == VOCABULARY  # words of three glosses
    assert "zebra" in script.choose_vocabulary(synsets, min_glosses=1)
    # It begins with the words of most glosses.
    glosses = [("b",), ("b", "b"), ("b", "a"), ("a", "c", "c", "c")]
    synsets = [script.Synset(("n", str(i)), 0, (), words) for i, words in enumerate(glosses)]
    assert script.choose_vocabulary(synsets, min_glosses=1) == ["b", "a", "c"]


def test_dataset_reads_what_the_script_writes(folder):
    content = script.build(folder)
    arrays = wordnet._unpack(content)
    assert wordnet._edge_index(arrays).T.tolist() == PAIRS
    assert wordnet._word_counts(arrays).toarray().tolist() == COUNTS
    kept = stored(content)
    assert kept["vocabulary"].tobytes().decode().split("\n") == VOCABULARY
    licence = kept["licence"].tobytes().decode()
    assert licence == "A licence that asks to be kept,\n\nwith an empty line in it.\n"


@given(st.lists(st.sets(st.integers(0, 100_000)).map(sorted)))
@example([[300, 301], [], [7]])
def test_gaps_can_be_undone_and_are_small_numbers(rows):
    lengths, gaps = script.gaps(rows)
    assert lengths.tolist() == [len(row) for row in rows]
    assert wordnet._from_gaps(lengths, gaps).tolist() == [n for row in rows for n in row]
    if rows == [[300, 301], [], [7]]:
        assert gaps.tolist() == [300, 1, 7]
        assert (lengths.dtype, gaps.dtype) == (np.dtype("u1"), np.dtype("<u2"))


def test_rebuilding_gives_the_same_bytes(folder, tmp_path):
    # in a process of its own, with another hash seed: the order of a set must not get in
    command = [sys.executable, str(SCRIPT), "--wordnet", str(folder), "--out"]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    out = tmp_path / "first.npz"
    subprocess.run([*command, str(out)], check=True, env=environment, capture_output=True)
    assert out.read_bytes() == script.build(folder)


def test_missing_wordnet_is_named(tmp_path, capsys):
    out = tmp_path / "out.npz"
    assert script.main(["--wordnet", str(tmp_path / "none"), "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert "apt-get install wordnet-base" in said.err
    assert said.err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    "line",
    [
        "00000001 03 n 01 word 0 002 @ 00001740 n 0000 | fewer pointers than announced",
        "00000001 03 n zz word 0 000 | no count",
        "00000001",
    ],
)
def test_broken_line_is_named(folder, line):
    with (folder / "data.noun").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"line 6 of .*data\.noun"):
        script.read_synsets(folder)


def test_what_a_pointer_cannot_be_is_named(folder):
    synsets = [
        script.Synset(("n", "0"), 0, (("n", "1"),), (), ("?",)),
        script.Synset(("n", "1"), 0, (), ()),
    ]
    with pytest.raises(DataError, match=r"symbol '\?'"):
        script.joined_pairs(synsets)
    with (folder / "data.adv").open("a") as file:
        file.write("00009999 02 r 01 lost 0 001 ! 00005555 r 0101 | astray\n")
    with pytest.raises(DataError, match="00005555"):
        script.build(folder)


@pytest.mark.slow
def test_bundled_file_is_what_the_script_builds():
    found = [folder for folder in REAL if (folder / "data.noun").is_file()]
    if not found:
        pytest.skip("needs WordNet 3.0: apt-get install wordnet-base")
    rebuilt, bundled = script.build(found[0]), wordnet.BUNDLED.read_bytes()
    np.testing.assert_equal(stored(rebuilt), stored(bundled))
    assert rebuilt == bundled, "the arrays agree, so another zlib must have packed them"
