"""Words of texts in a live learner: as they are where nodes are compared, projected for hops."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix

from evergraph import ContinualNodeClassifier
from evergraph.closed_form.own_features import NO_WORDS, PAIRS, WordColumns, packed_words
from evergraph.core.errors import DataError
from evergraph.online.arrays import Piece
from evergraph.online.codecs.delta_bytes import delta_from_bytes, delta_to_bytes
from evergraph.online.delta import Delta
from evergraph.online.learned_nodes import Counted
from evergraph.online.learner import OnlineLearner

KNOWN, ASKED = 240, 120


def told(seed: int = 0) -> tuple[list[str], list[str]]:
    """Return texts of ten words of thousands, and one of forty that tells the topic."""
    draws = np.random.default_rng(seed)
    topics = draws.integers(0, 2, KNOWN + ASKED)
    texts = [
        " ".join(
            [f"t{20 * topic + draws.integers(20)}", *(f"w{n}" for n in draws.integers(0, 4000, 10))]
        )
        for topic in topics
    ]
    return texts, [f"topic {topic}" for topic in topics]


def learned(texts: list[str], topics: list[str], **columns: list[float]) -> ContinualNodeClassifier:
    frame = pd.DataFrame({"text": texts, **columns})
    labels = [*topics[:KNOWN], *[None] * (len(topics) - KNOWN)]
    return ContinualNodeClassifier().partial_fit(list(range(len(texts))), frame, labels)


def test_an_explanation_adds_up_with_words():
    texts, topics = told()
    model = learned(texts, topics)
    told_of = model.explain(KNOWN, limit=1000)
    assert told_of.voices is not None
    head = model.learner_.head
    offsets = dict(zip(model.classes_, head.engine.fused_.offsets.tolist(), strict=True))
    assert np.allclose(told_of.rest, [offsets[name] for name in told_of.classes], atol=1e-4)
    own = next(voice for voice in told_of.voices if voice.node == KNOWN)
    assert max(map(abs, own.says)) > 0.1
    assert told_of.columns is not None
    assert told_of.columns[0].column == "words"
    assert np.allclose(told_of.columns[0].says, own.says, atol=0.2)


def test_other_words_are_counted_again_whatever_the_tolerance():
    """A column is a number: the next one is near it, and another word."""
    counted = Counted([2, 2], tolerance=0.5, exact=[1])
    counted.put(torch.tensor([0]), torch.tensor([[1.0, 1.0, 1.0, 7.0]]))
    other = torch.tensor([[1.1, 1.0, 1.0, 8.0]])
    moved = counted.moved(torch.tensor([0]), [Piece(4, lambda nodes: other[nodes].numpy())])
    assert moved.after.tolist() == [[1.0, 1.0, 1.0, 8.0]]


def test_texts_that_change_are_as_if_they_had_always_been_so():
    texts, topics = told()
    one = learned(texts, topics)
    changed = [0, 1, KNOWN]
    other = [*texts]
    for node in changed:
        other[node] = texts[-1 - node]
    one.update_features(changed, pd.DataFrame({"text": [other[node] for node in changed]}))
    known = one.learner_.knowledge
    assert known is not None
    every = torch.arange(len(texts))
    at_once = OnlineLearner()
    labels = [*topics[:KNOWN], *[None] * ASKED]
    features = known.features_of(every)
    at_once.apply(
        Delta(nodes=every.tolist(), features=features, labels=labels, words=known.word_columns)
    )
    (_, found), (_, right) = (
        each.predict_proba(every.tolist()) for each in (one.learner_, at_once)
    )
    torch.testing.assert_close(found, right, atol=1e-5, rtol=0)
    assert not bool(
        (features == learned(texts, topics).learner_.knowledge.features_of(every)).all()
    )


def test_arrays_after_texts_have_no_words():
    texts, topics = told()
    model = learned(texts, topics)
    model.partial_fit(["more"], np.zeros((1, 128)), [None])
    known = model.learner_.knowledge
    assert known is not None
    assert not bool(known.features_of(torch.tensor([len(texts)])).any())


def test_words_are_written_with_a_delta_and_checked():
    words = packed_words(csr_matrix([[0, 3, 4]], dtype="float32"))
    delta = Delta(nodes=("a",), features=words, labels=(None,), words=WordColumns(2 * PAIRS, False))
    again = delta_from_bytes(delta_to_bytes(delta))
    assert again.words == delta.words
    assert again.features.equal(words)
    assert delta_from_bytes(delta_to_bytes(replace(delta, words=NO_WORDS))).words == NO_WORDS
    for wrong in ([1], [-1, True], [1, 1]):
        with pytest.raises(DataError, match="words must be a number of columns"):
            WordColumns.read(wrong)
