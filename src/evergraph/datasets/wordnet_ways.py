"""WordNet three more ways: with its relations, by part of speech, and by depth."""

from __future__ import annotations

from evergraph.datasets.base import datasets
from evergraph.datasets.wordnet import WordNet


@datasets.register
class WordNetRelations(WordNet):
    """WordNet with its 18 relations on the edges and parts of speech on the nodes.

    ``wordnet`` with ``relations=True``: the same 45 classes, for methods that see relations.
    """

    name = "wordnet-relations"

    def __init__(self, *, dims: int = 256) -> None:
        super().__init__(dims=dims, relations=True)


@datasets.register
class WordNetPartsOfSpeech(WordNet):
    """WordNet with parts of speech as classes: noun, verb, adjective, satellite, adverb.

    ``wordnet`` with ``classes="parts-of-speech"``. Few and uneven classes: 82,115 nouns and 3,621
    adverbs. Satellites are joined to the adjectives whose meaning they share.
    """

    name = "wordnet-pos"

    def __init__(self, *, dims: int = 256) -> None:
        super().__init__(dims=dims, classes="parts-of-speech")


@datasets.register
class WordNetDepth(WordNet):
    """WordNet with depth below the most general synset as class: general first, specific later.

    ``wordnet`` with ``classes="depth"``: 0 to 12 steps up, and 13 or more. Adjectives and adverbs
    have no hypernyms and no class.
    """

    name = "wordnet-depth"

    def __init__(self, *, dims: int = 256) -> None:
        super().__init__(dims=dims, classes="depth")
