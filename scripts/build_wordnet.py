"""Build the bundled `wordnet` dataset from the publisher's WordNet 3.0 files.

    python scripts/build_wordnet.py [--wordnet DIR] [--out FILE]

A synset is a node. Nodes are numbered in the order of the lines of data.noun, data.verb, data.adj
and data.adv, one file after the other. A pointer of any type between two synsets, lexical pointers
(from word to word) included, is an edge; doubles and pointers of a synset to itself are dropped.
Its kinds are kept beside it: what the pointers between the two say, and which way. Pointers that
say the same backwards (hyponym and hypernym) count once. A node's type is its part of speech, and
its class is its lexicographer file number. Its words are the runs of
letters in its gloss (the definition and the examples), lower-cased; words that fewer than three
glosses have are left out, because a word that joins no glosses cannot help to compare them.

The file is one npz of plain arrays, in the form that `evergraph.datasets.wordnet` reads:

    labels         uint8 [nodes]            lexicographer file number
    edge_lengths   [nodes]                  how many neighbours with a larger number each node has
    edge_gaps      [pairs]                  those neighbours, ascending, as differences in a row
    edge_kinds     [pairs]                  which line of ``kinds`` tells what a pair is joined by
    kinds          uint8, text              a line: relations, ``>`` behind one that runs from the
                                            smaller number to the larger, ``<`` the other way
    types          uint8 [nodes]            part of speech: a letter of WordNet's own
    word_lengths   [nodes]                  how many different words each gloss has
    word_gaps      [entries]                their places in the vocabulary, in the same way
    word_counts    [entries]                how often the gloss has each
    vocabulary     uint8, text              the words, one a line, those of most glosses first
    licence        uint8, text              WordNet's licence, which asks to be on every copy

The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evergraph.core.errors import EXIT_CODE, DataError, EvergraphError

IntArray = npt.NDArray[np.integer[Any]]
Key = tuple[str, str]  # part of speech and byte offset: what a pointer names a synset by

FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}
# What pointers say, by their symbols; of two that say the same backwards, one.
RELATIONS = {
    "@": "hypernym",
    "@i": "instance-of",
    "#m": "member-of",
    "#p": "part-of",
    "#s": "substance-of",
    ";c": "topic",
    ";r": "region",
    ";u": "usage",
    "&": "similar-to",
    "+": "derived-from",
    "\\": "pertains-to",
    "!": "antonym",
    "^": "also-see",
    "$": "verb-group",
    "=": "attribute",
    "*": "entails",
    ">": "causes",
    "<": "participle-of",
}
BACKWARDS = {"~": "@", "~i": "@i", "%m": "#m", "%p": "#p", "%s": "#s"} | {
    "-c": ";c",
    "-r": ";r",
    "-u": ";u",
}
MIN_GLOSSES = 3
WORD = re.compile("[a-z]+")
LICENCE_LINE = re.compile(r"  \d+ (.*)")
DEFAULT_WORDNET = Path("/usr/share/wordnet")
DEFAULT_OUT = Path(__file__).resolve().parents[1] / "src/evergraph/datasets/bundled/wordnet.npz"


@dataclass(frozen=True)
class Synset:
    """One line of a data file; ``kinds`` are the symbols of its pointers."""

    key: Key
    label: int
    pointers: tuple[Key, ...]
    words: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    part: str = "n"


def parse_synset(line: str) -> Synset:
    """Read ``offset lex_filenum ss_type w_cnt [word lex_id]... p_cnt [pointer]... | gloss``.

    w_cnt is hexadecimal, the other numbers are decimal; a pointer is ``symbol offset pos source``.
    What a verb has after its pointers are sentence frames, which are not wanted.
    """
    data, _, gloss = line.partition("|")
    fields = data.split()
    count_at = 4 + 2 * int(fields[3], 16)
    first, count = count_at + 1, int(fields[count_at])
    if len(fields) < first + 4 * count:
        raise IndexError(f"{count} pointers announced")
    pointers = [fields[at : at + 4] for at in range(first, first + 4 * count, 4)]
    return Synset(
        key=(_file_of(fields[2]), fields[0]),
        label=int(fields[1]),
        pointers=tuple((_file_of(pos), offset) for _, offset, pos, _ in pointers),
        words=tuple(WORD.findall(gloss.lower())),
        kinds=tuple(symbol for symbol, *_ in pointers),
        part=fields[2],
    )


def _file_of(pos: str) -> str:
    """Return the key of the file that holds a part of speech: satellites (s) lie in data.adj."""
    return "a" if pos == "s" else pos


def read_synsets(folder: Path) -> list[Synset]:
    """Return every synset, in the order of the four files."""
    return [synset for name in FILES.values() for synset in _read_file(_existing(folder / name))]


def _read_file(path: Path) -> Iterator[Synset]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.startswith("  "):  # the licence, at the top of each file
                continue
            try:
                yield parse_synset(line)
            except (ValueError, IndexError) as error:
                raise DataError(
                    f"line {number} of {path} is no synset in WordNet's format ({error})"
                ) from error


def read_licence(folder: Path) -> str:
    """Return the licence at the top of data.noun, without its line numbers."""
    with _existing(folder / FILES["n"]).open(encoding="utf-8") as lines:
        lines_of_licence = [match[1].rstrip() for match in map(LICENCE_LINE.match, lines) if match]
    return "\n".join(lines_of_licence) + "\n"


def _existing(path: Path) -> Path:
    if path.is_file():
        return path
    raise DataError(
        f"there is no {path}: Debian's package wordnet-base (apt-get install wordnet-base) "
        "provides WordNet 3.0 in /usr/share/wordnet, or name its folder with --wordnet"
    )


def joined_pairs(synsets: Sequence[Synset]) -> dict[tuple[int, int], str]:
    """Return each pair of linked nodes, smaller number first, sorted, and what joins them.

    What joins them is told as ``kinds`` has it: ``hypernym> similar-to< similar-to>``.
    """
    number = {synset.key: node for node, synset in enumerate(synsets)}
    relations: dict[tuple[int, int], set[str]] = {}
    for node, synset in enumerate(synsets):
        for key, symbol in zip(synset.pointers, synset.kinds, strict=True):
            if key not in number:
                raise DataError(f"synset {synset.key} points to {key}, which no data file has")
            ends = node, number[key]
            relation = _directed_relation(symbol, forward=ends[0] < ends[1])
            if ends[0] != ends[1]:
                relations.setdefault((min(ends), max(ends)), set()).add(relation)
    return {pair: " ".join(sorted(relations[pair])) for pair in sorted(relations)}


def _directed_relation(symbol: str, *, forward: bool) -> str:
    """Return a relation's name and which way it runs: > from the smaller number to the larger."""
    if symbol in BACKWARDS:
        symbol, forward = BACKWARDS[symbol], not forward
    if symbol not in RELATIONS:
        raise DataError(f"a pointer has the symbol {symbol!r}, which is none of WordNet 3.0's")
    return RELATIONS[symbol] + ("<", ">")[forward]


def choose_vocabulary(synsets: Sequence[Synset], *, min_glosses: int = MIN_GLOSSES) -> list[str]:
    """Return the words of ``min_glosses`` glosses or more, those of most first, then by letter.

    That order makes most places in the vocabulary small numbers, which compress well.
    """
    glosses = Counter(word for synset in synsets for word in set(synset.words))
    words = (word for word, count in glosses.items() if count >= min_glosses)
    return sorted(words, key=lambda word: (-glosses[word], word))


def count_words(
    synsets: Sequence[Synset], vocabulary: Sequence[str]
) -> tuple[list[list[int]], list[int]]:
    """Return for each synset the places of its words, ascending, and the count of each in turn."""
    index_of = {word: index for index, word in enumerate(vocabulary)}
    rows: list[list[int]] = []
    counts: list[int] = []
    for synset in synsets:
        word_counts = Counter(index_of[word] for word in synset.words if word in index_of)
        rows.append(sorted(word_counts))
        counts.extend(word_counts[index] for index in rows[-1])
    return rows, counts


def gaps(rows: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Return how long each ascending row is, and its numbers as differences from the one before.

    The first number of a row stands as it is: [[3, 5], [], [1]] -> [2, 0, 1], [3, 2, 1].
    """
    steps = [now - before for row in rows for before, now in zip([0, *row], row, strict=False)]
    return smallest([len(row) for row in rows]), smallest(steps)


def smallest(numbers: Sequence[int] | IntArray) -> IntArray:
    """Return numbers of 0 or more in the smallest little-endian type that holds them all."""
    array = np.asarray(numbers, dtype=np.int64)
    kind = np.min_scalar_type(int(array.max(initial=0)))
    return array.astype(kind.newbyteorder("<"))


def pack(synsets: Sequence[Synset], *, licence: str) -> dict[str, IntArray]:
    """Return the arrays of the bundled file."""
    neighbours: list[list[int]] = [[] for _ in synsets]
    pairs = joined_pairs(synsets)
    for smaller, larger in pairs:
        neighbours[smaller].append(larger)
    kinds = [kind for kind, _ in Counter(pairs.values()).most_common()]
    line_of = {kind: line for line, kind in enumerate(kinds)}
    vocabulary = choose_vocabulary(synsets)
    words, counts = count_words(synsets, vocabulary)
    edge_lengths, edge_gaps = gaps(neighbours)
    word_lengths, word_gaps = gaps(words)
    return {
        "labels": np.array([synset.label for synset in synsets], dtype=np.uint8),
        "edge_lengths": edge_lengths,
        "edge_gaps": edge_gaps,
        "edge_kinds": smallest([line_of[kind] for kind in pairs.values()]),
        "kinds": _as_bytes("\n".join(kinds)),
        "types": _as_bytes("".join(synset.part for synset in synsets)),
        "word_lengths": word_lengths,
        "word_gaps": word_gaps,
        "word_counts": smallest(counts),
        "vocabulary": _as_bytes("\n".join(vocabulary)),
        "licence": _as_bytes(licence),
    }


def _as_bytes(text: str) -> IntArray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def build(wordnet: Path) -> bytes:
    """Return the content of the bundled file.

    numpy dates every entry of an npz 1980-01-01, so that nothing in it tells when it was made.
    """
    arrays: dict[str, Any] = dict(pack(read_synsets(wordnet), licence=read_licence(wordnet)))
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--wordnet", type=Path, default=DEFAULT_WORDNET, metavar="DIR")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        content = build(options.wordnet)
    except EvergraphError as error:
        print(error, file=sys.stderr)
        return EXIT_CODE
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(content)
    print(f"{options.out}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
