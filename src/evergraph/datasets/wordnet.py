"""WordNet 3.0, bundled: every synset is a node, every pointer an edge; in four variants."""

from __future__ import annotations

import hashlib
import importlib.resources
import io
import logging
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, check_choice, check_integer
from evergraph.core.resources import exactly_threads
from evergraph.core.safe_files import written_aside
from evergraph.core.seeding import seeded
from evergraph.datasets.base import Dataset, datasets
from evergraph.graphs import Graph
from evergraph.graphs.csr import csr_tensor
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.validation import UNLABELLED

logger = logging.getLogger(__name__)
IntArray = npt.NDArray[np.integer[Any]]
Arrays = Mapping[str, IntArray]
BUNDLED = importlib.resources.files("evergraph.datasets") / "bundled" / "wordnet.npz"

# Exceptions of zipfile and numpy for a damaged file.
DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, LookupError, ValueError, MemoryError)

# Incremented when the computation of features changes, so that older cached ones are not read.
RECIPE = 1
PARTS_OF_SPEECH = {"n": "noun", "v": "verb", "a": "adjective", "s": "satellite", "r": "adverb"}
PARTS = tuple(PARTS_OF_SPEECH.values())  # in the order of their classes
CLASSES = ("files", "parts-of-speech", "depth")
UPWARD = ("hypernym", "instance-of")  # relations to something more general
MAX_DEPTH = 13  # the last class: this depth or more
# Extra directions beyond those requested; they absorb the error of the last ones.
OVERSAMPLING = 32


@datasets.register
class WordNet(Dataset):
    """WordNet 3.0: 117,659 synsets, 367,578 pointer entries, 45 lexicographer files as classes.

    Miller, "WordNet: a lexical database for English", CACM 1995. Nodes are in the order of the
    publisher's files noun, verb, adj, adv; edges are undirected. Features are the TF-IDF of the
    words in a synset's gloss (definition and examples), reduced by truncated SVD to ``dims``
    numbers, and nothing else. ``scripts/build_wordnet.py`` makes and documents the bundled file.
    In the publisher's order the nodes of a class are consecutive, so a split must not go by number.

    With ``relations``, edges have one of 18 directed relations, such as hypernym, part-of and
    antonym, and nodes have their part of speech as type. Every class belongs to one part of speech,
    and adverbs are a class of their own, so the type reveals much about the class.

    With ``classes``, a node's class is its part of speech ("parts-of-speech", 5 of them) or the
    number of steps up to the most general synset ("depth", 14 of them) instead of its file
    ("files").

    The features take some seconds to compute the first time and are then cached.
    """

    name = "wordnet"

    def __init__(self, *, dims: int = 256, relations: bool = False, classes: str = "files") -> None:
        check_integer("dims", dims, least=1)
        check_choice("classes", classes, CLASSES)
        self.dims = dims
        self.relations = relations
        self.classes = classes

    def load(self, cache: Path) -> Graph:
        """Return the graph, with its features from ``cache`` if they are there."""
        content = BUNDLED.read_bytes()
        arrays = _unpack(content)
        # Features of another file or another recipe have another name.
        fingerprint = hashlib.sha256(b"recipe %d\n" % RECIPE + content).hexdigest()[:12]
        file = cache / f"wordnet-{self.dims}-{fingerprint}.npy"
        features = _cached(file, shape=(len(arrays["labels"]), self.dims))
        if features is None:
            features = _compute_features(arrays, self.dims)
            try:
                with written_aside(file) as target:
                    np.save(target, features.numpy())
            except OSError as error:
                logger.warning("the features of wordnet cannot be cached in %s (%s)", file, error)
        return self._graph(arrays, features)

    def load_outline(self, cache: Path) -> Graph:
        """Return the graph with empty features, since the real ones take long to compute."""
        arrays = _unpack(BUNDLED.read_bytes())
        nodes = len(arrays["labels"])
        none = torch.empty(0, dtype=torch.int32)
        empty = csr_tensor(none.new_zeros(nodes + 1), none, none.float(), (nodes, self.dims))
        return self._graph(arrays, empty)

    def _graph(self, arrays: Arrays, features: Tensor) -> Graph:
        labels = torch.from_numpy(arrays["labels"].astype(np.int64))
        if self.classes == "parts-of-speech":
            types = _types(arrays)
            labels = torch.tensor([PARTS.index(n) for n in types.names])[types.numbers.long()]
        elif self.classes == "depth":
            labels = by_depth(_relations(arrays), _types(arrays))
        graph = Graph.from_edges(
            _edge_index(arrays), features=features, labels=labels, undirected=True
        )
        if not self.relations:
            return graph
        return graph.with_relations(_relations(arrays)).with_types(_types(arrays))


def _relations(arrays: Arrays) -> Relations:
    # Of every pointer, from the kinds of links between pairs of nodes.
    lines = arrays["kinds"].tobytes().decode().split("\n")
    names = sorted({word[:-1] for line in lines for word in line.split()})
    pairs = _edge_index(arrays)
    kinds = torch.from_numpy(arrays["edge_kinds"].astype(np.int64))
    ends, numbers = [], []
    for kind, line in enumerate(lines):
        kind_pairs = pairs[:, kinds == kind]
        for word in line.split():
            ends.append(kind_pairs if word[-1] == ">" else kind_pairs.flip(0))
            numbers.append(torch.full((kind_pairs.shape[1],), names.index(word[:-1])))
    nodes = len(arrays["labels"])
    return Relations.of(torch.cat(ends, dim=1), torch.cat(numbers), names, nodes=nodes)


def _types(arrays: Arrays) -> NodeTypes:
    letters, numbers = np.unique(arrays["types"], return_inverse=True)
    names = tuple(PARTS_OF_SPEECH[chr(letter)] for letter in letters)
    return NodeTypes(names, torch.from_numpy(numbers.astype(np.int16)))


def _unpack(content: bytes) -> Arrays:
    """Return the arrays of the bundled file with gaps decoded."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        names = ("labels", "edge_lengths", "word_lengths", "word_counts")
        arrays = {name: stored[name] for name in (*names, "edge_kinds", "kinds", "types")}
        for name in ("edge", "word"):
            lengths = arrays[f"{name}_lengths"]
            arrays[f"{name}s"] = _from_gaps(lengths, stored[f"{name}_gaps"])
        return arrays


def _from_gaps(lengths: IntArray, gaps: IntArray) -> IntArray:
    """Turn differences within rows back into numbers.  [rows], [entries] -> int64 [entries]

    >>> _from_gaps(np.array([2, 0, 1]), np.array([3, 2, 1]))
    array([3, 5, 1])
    """
    total = np.concatenate([[0], np.cumsum(gaps, dtype=np.int64)])
    begins = np.cumsum(lengths, dtype=np.int64) - lengths
    numbers: IntArray = total[1:] - np.repeat(total[begins], lengths)
    return numbers


def _edge_index(arrays: Arrays) -> Tensor:
    """Return each pair of linked nodes once.  int64 [2, pairs]"""
    lengths = arrays["edge_lengths"]
    sources = np.repeat(np.arange(len(lengths)), lengths)
    return torch.from_numpy(np.stack([sources, arrays["edges"]]))


def _word_counts(arrays: Arrays) -> scipy.sparse.csr_matrix:
    """Return the frequency of each word in each gloss.  [nodes, words]"""
    words = arrays["words"].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(arrays["word_lengths"], dtype=np.int32)])
    shape = (len(indptr) - 1, int(words.max(initial=0)) + 1)
    return scipy.sparse.csr_matrix((arrays["word_counts"].astype(float), words, indptr), shape)


def _compute_features(arrays: Arrays, dims: int) -> Tensor:
    """Return the features of every node.  float32 [nodes, dims]"""
    generator = seeded(0, "wordnet", "features")
    return truncated_svd(tf_idf(_word_counts(arrays)), dims=dims, generator=generator)


def tf_idf(counts: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """Weight words by their frequency in a row and rarity among rows.  [rows, words] -> the same

    x_rw = (1 + ln(count_rw)) · (1 + ln((1 + rows) / (1 + df_w))), then every row is scaled to
    length 1. df_w counts the rows that have word w. Rows without a word stay zero. Stored entries
    must be 1 or more.

    >>> counts = scipy.sparse.csr_matrix(np.array([[3.0, 0.0], [0.0, 0.0]]))
    >>> tf_idf(counts).toarray()
    array([[1., 0.],
           [0., 0.]], dtype=float32)
    """
    rows, words = counts.shape
    present = np.bincount(counts.indices, minlength=words)  # df, [words]
    idf = 1.0 + np.log((1.0 + rows) / (1.0 + present))
    weights = (1.0 + np.log(counts.data)) * idf[counts.indices]
    entry_rows = np.repeat(np.arange(rows), np.diff(counts.indptr))
    lengths = np.sqrt(np.bincount(entry_rows, weights=weights**2, minlength=rows))
    scaled = (weights / lengths[entry_rows]).astype(np.float32)
    return scipy.sparse.csr_matrix((scaled, counts.indices, counts.indptr), shape=counts.shape)


def truncated_svd(
    matrix: scipy.sparse.csr_matrix,
    *,
    dims: int,
    generator: torch.Generator,
    power_iterations: int = 4,
) -> Tensor:
    """Return U·S of the ``dims`` largest singular values, largest first.  [n, m] -> [n, dims]

    Randomised subspace iteration (Halko, Martinsson and Tropp 2011, algorithm 4.4) on the side of
    the columns: Q <- orth(Aᵀ A Q), begun with a random Q [m, dims + oversampling]. Then B = A Q
    holds nearly all of A, and with Bᵀ B = W S² Wᵀ the answer is B W = U S; the right singular
    vectors are Q W. Only matrices as tall as A has columns are orthogonalised, which makes it fast
    for many rows. The sign of each direction makes the largest entry of its right singular vector
    positive.
    """
    smaller = min(matrix.shape)
    if not 1 <= dims <= smaller:
        message = (
            f"dims must lie between 1 and {smaller}, the smaller side of the matrix: got {dims}"
        )
        raise ConfigurationError(message)

    def as_torch(matrix: scipy.sparse.csr_matrix) -> Tensor:  # torch's products use all cores
        parts = (matrix.indptr, matrix.indices, np.asarray(matrix.data, dtype=np.float32))
        indptr, indices, values = map(torch.from_numpy, parts)
        return csr_tensor(indptr, indices, values, matrix.shape)

    def orthonormal(columns: Tensor) -> Tensor:  # [m, width] -> [m, width]
        with exactly_threads(1):
            basis: Tensor = torch.linalg.qr(columns).Q
            return basis

    # Factorisations have one thread: they synchronise thousands of times. A second idle core gains
    # little; if another process uses the same cores, each barrier waits for it, and 0.2 s become 8.
    A, At = as_torch(matrix), as_torch(matrix.T.tocsr())
    width = min(dims + OVERSAMPLING, smaller)
    Q = orthonormal(torch.randn(matrix.shape[1], width, generator=generator))
    for _ in range(power_iterations):
        Q = orthonormal(At @ (A @ Q))
    B = A @ Q  # [n, width]
    with exactly_threads(1):
        vectors = torch.linalg.eigh((B.T @ B).double()).eigenvectors  # ascending
    W = vectors.flip(1)[:, :dims].float()  # [width, dims]
    right = Q @ W
    largest = right.gather(0, right.abs().argmax(0, keepdim=True))[0]
    scaled_left: Tensor = B @ (W * torch.where(largest < 0, -1.0, 1.0))
    return scaled_left


def _cached(file: Path, *, shape: tuple[int, int]) -> Tensor | None:
    """Return the features cached in ``file``, or None if there are no valid ones."""
    try:
        features = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        return None
    except DAMAGE as error:
        logger.warning("%s cannot be read (%s): the features are computed again", file, error)
        return None
    sound = (
        isinstance(features, np.ndarray)
        and features.shape == shape
        and features.dtype == np.float32
    )
    if not sound or not np.isfinite(features.sum()):
        logger.warning("%s does not hold the features: they are computed again", file)
        return None
    return torch.from_numpy(features)


def by_depth(relations: Relations, types: NodeTypes, *, deepest: int = MAX_DEPTH) -> Tensor:
    """Return the number of steps from each node up to a root.  int64 [nodes]

    depth(root) = 0 and depth(x) = 1 + min over x's hypernyms, at most ``deepest``. Only nouns and
    verbs have hypernyms; the other parts of speech have no class.

    >>> up = Relations.of(torch.tensor([[1, 2, 3, 3], [0, 1, 2, 0]]), torch.zeros(4).long(),
    ...                   ("hypernym",), nodes=5)
    >>> kinds = torch.tensor([0, 0, 0, 0, 1], dtype=torch.int16)
    >>> by_depth(up, NodeTypes(("noun", "adverb"), kinds))
    tensor([ 0,  1,  2,  1, -1])
    """
    ends, numbers = relations.edges()
    upward = [number for number, name in enumerate(relations.names) if name in UPWARD]
    children, parents = ends[:, torch.isin(numbers, torch.tensor(upward))]
    with_depth = [number for number, name in enumerate(types.names) if name in ("noun", "verb")]
    depth = torch.full((len(types.numbers),), UNLABELLED)
    depth[torch.isin(types.numbers.long(), torch.tensor(with_depth))] = 0
    depth[children] = UNLABELLED  # until a parent's depth is known
    level = 0
    while len(next_level := children[(depth[parents] == level) & (depth[children] < 0)]):
        level += 1
        depth[next_level] = level
    return depth.clamp_max(deepest)


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
