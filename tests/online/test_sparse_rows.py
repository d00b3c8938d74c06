"""Wide sparse arrays in a live learner: a node's own values as they are, projected for hops."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import coo_matrix, csr_matrix, random, vstack
from torch_geometric.data import Data

from evergraph import ContinualNodeClassifier, Graph
from evergraph.closed_form.own_features import WordColumns
from evergraph.core.errors import DataError, InvalidRowsError
from evergraph.online import sparse_rows
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from evergraph.online.sparse_rows import PAIRS, SIGNS, csr_features, projected, signs_of
from evergraph.tables.hashed import signs

COLUMNS, NODES = 5000, 60
WORDS = WordColumns(2 * PAIRS, alone=True, of=COLUMNS)


def bags(nodes: int = NODES, seed: int = 0) -> tuple[csr_matrix, list[str]]:
    """Return rows of ten words of thousands, and one of five that tells the topic."""
    draws = np.random.default_rng(seed)
    topics = draws.integers(0, 2, nodes)
    told = coo_matrix(
        (np.ones(nodes), (np.arange(nodes), 5 * topics + draws.integers(0, 5, nodes))),
        shape=(nodes, COLUMNS),
    )
    others = random(nodes, COLUMNS, density=10 / COLUMNS, random_state=seed, format="csr")
    return csr_matrix(told + others), [f"topic {topic}" for topic in topics]


def ring(nodes: int) -> list[tuple[int, int]]:
    return [(node, (node + 1) % nodes) for node in range(nodes)]


def scores(learner: OnlineLearner, nodes: int = NODES) -> torch.Tensor:
    return learner.predict_proba(list(range(nodes)))[1]


def test_a_row_by_hand():
    row = csr_matrix(([3.0, 4.0], ([0, 0], [7, 4999])), shape=(1, COLUMNS))
    learner = OnlineLearner()
    learner.apply(Delta(nodes=["a"], features=csr_features(row), labels=["x"]))
    known = learner.knowledge
    assert known is not None
    assert known.word_columns == WORDS
    kept = known.features_of(torch.tensor([0]))[0]
    assert len(kept) == SIGNS + 2 * PAIRS
    names = signs(["7", "4999"], SIGNS)  # ±1 / √128 each, as words of texts have them
    assert torch.allclose(kept[:SIGNS], torch.from_numpy(3 * names[0] + 4 * names[1]))
    values, columns = kept[SIGNS:].view(2, PAIRS)
    assert values.nonzero().flatten().tolist() == [0, 1]
    assert torch.allclose(values[:2], torch.tensor([0.6, 0.8]))
    assert columns[:2].tolist() == [7, 4999]
    assert learner.status().features == COLUMNS


def test_projections_keep_products_and_do_not_depend_on_other_rows():
    rows, _ = bags()
    rows = rows.astype(np.float32)
    whole = projected(rows)
    assert whole.equal(torch.cat([projected(rows[at]) for at in range(NODES)]))
    wrong = (whole @ whole.t()).numpy() - (rows @ rows.T).toarray()
    lengths = np.sqrt(rows.multiply(rows).sum(1).A1)
    assert np.abs(wrong / np.outer(lengths, lengths)).std() < 1.5 / math.sqrt(SIGNS)
    assert set(np.unique(signs_of(np.arange(9)))) == {-1, 1}


@pytest.mark.parametrize(
    ("columns", "entries", "of"),
    [
        (sparse_rows.WIDE, 1, 0),
        (sparse_rows.WIDE + 1, 1, sparse_rows.WIDE + 1),
        (sparse_rows.WIDE + 1, PAIRS + 1, 0),  # not sparse, whatever holds it
        (sparse_rows.TOO_WIDE + 1, PAIRS + 1, sparse_rows.TOO_WIDE + 1),
    ],
)
def test_which_arrays_are_kept_as_words(columns, entries, of):
    rows = csr_matrix((np.ones(entries), np.arange(entries), [0, entries]), shape=(1, columns))
    for head in ("auto", "analytic"):  # the second reads no words
        learner = OnlineLearner(head=head)
        found = learner.fitting(Delta(nodes=["a"], features=csr_features(rows)))
        assert found.words.of == (of if head == "auto" else 0)
        if not found.words.of:
            assert found.features.equal(torch.from_numpy(rows.toarray()).float())
    dense = Delta(nodes=["a"], features=torch.from_numpy(rows.toarray()).float())
    assert OnlineLearner().fitting(dense) is dense


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csc, torch.sparse_bsr])
def test_sparse_tensors_of_every_layout_are_read_alike(layout):
    rows = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    size = (1, 2) if layout == torch.sparse_bsr else None
    assert csr_features(rows.to_sparse(layout=layout, blocksize=size)).to_dense().equal(rows)


@pytest.mark.filterwarnings("error")
def test_values_beyond_float32_become_infinite_without_a_warning():
    assert csr_features(csr_matrix([[1e300, 0.0]])).values().isinf().all()


def test_too_many_columns_are_refused():
    rows = csr_features(csr_matrix((1, sparse_rows.MOST_COLUMNS + 1)))
    with pytest.raises(DataError, match=r"have 16,777,217 columns: expected at most 16,777,216"):
        OnlineLearner().apply(Delta(nodes=["a"], features=rows))


def test_rows_one_by_one_are_as_all_at_once():
    rows, topics = bags()
    at_once, one_by_one = OnlineLearner(), OnlineLearner()
    nodes, edges = list(range(NODES)), ring(NODES)
    at_once.apply(Delta(nodes=nodes, features=csr_features(rows), labels=topics, edges=edges))
    order = np.random.default_rng(1).permutation(NODES).tolist()
    for place, node in enumerate(order):
        there = set(order[: place + 1])
        joining = [pair for pair in edges if node in pair and there.issuperset(pair)]
        row = rows[node] if place % 2 == 0 else rows[node].toarray()  # dense rows are as good
        given = csr_features(row) if place % 2 == 0 else torch.from_numpy(row).float()
        one_by_one.apply(Delta(nodes=[node], features=given, labels=[topics[node]], edges=joining))
    for learner in (at_once, one_by_one):
        learner.apply(Delta(refit=True))
    numbers = [one_by_one.classes.index(name) for name in at_once.classes]
    assert torch.allclose(scores(at_once), scores(one_by_one)[:, numbers], atol=1e-3)


def test_forgetting_leaves_no_trace():
    rows, topics = bags()
    known, never = OnlineLearner(), OnlineLearner()
    left = NODES - 1
    first = csr_features(rows[:left])
    edges = ring(left)
    for learner in (known, never):
        learner.apply(Delta(nodes=range(left), features=first, labels=topics[:left], edges=edges))
    last = csr_features(rows[left:])
    known.apply(Delta(nodes=[left], features=last, labels=["x"], edges=[(left, 0)]))
    known.apply(Delta(forgotten=[left]))
    knowledge = known.knowledge
    assert knowledge is not None
    assert not bool(knowledge.features_of(torch.tensor([left])).any())
    for learner in (known, never):
        learner.apply(Delta(refit=True))
    assert torch.allclose(scores(known, left)[:, :2], scores(never, left), atol=1e-4)


def test_a_classifier_in_a_folder(tmp_path):
    rows, topics = bags()
    nodes = list(range(NODES))
    labels = [*topics[:40], *[None] * 20]
    with ContinualNodeClassifier.open(tmp_path / "kept") as model:
        model.partial_fit(nodes[:40], rows[:40], labels[:40], ring(40), key="first")
        model.partial_fit(nodes[:40], rows[:40], labels[:40], ring(40), key="first")
        model.partial_fit(nodes[40:], rows[40:], labels[40:])
        model.update_features([3], rows[4])
        assert model.status().nodes == NODES
        assert model.n_features_in_ == COLUMNS
        with pytest.raises(DataError, match=r"have 4,999 columns, but the .* have 5,000"):
            model.partial_fit(["more"], rows[:1, :-1])
        with pytest.raises(InvalidRowsError, match=r"X has 4999 features, but .* expecting 5000"):
            model.predict(rows[:1, :-1])
        with pytest.raises(DataError, match=r"updated_features have 384 columns"):
            model.update_features([3], np.zeros((1, SIGNS + 2 * PAIRS)))
        before = scores(model.learner_)
        asked = model.predict_proba(rows[40:])
        assert np.array_equal(asked, model.predict_proba(rows[40:].toarray()))
        told = model.explain(0, limit=COLUMNS)
    with ContinualNodeClassifier.open(tmp_path / "kept") as again:
        assert scores(again.learner_).equal(before)
        assert again.learner_.knowledge.word_columns == WORDS
        assert np.array_equal(again.predict_proba(rows[40:]), asked)
        again.save(tmp_path / "saved")
    assert scores(ContinualNodeClassifier.load(tmp_path / "saved").learner_).equal(before)
    assert told.columns is not None
    there = {str(column) for node in (38, 39, 0, 1, 2) for column in rows[node].indices}
    assert {each.column for each in told.columns} <= there


def test_an_explanation_adds_up_by_columns():
    """Without edges and codes a score is what columns add, shape and the intercept."""
    rows, topics = bags()
    model = ContinualNodeClassifier(head_options={"views": ["0", "1"]})
    model.partial_fit(list(range(NODES)), rows, topics, ring(NODES))
    told = model.explain(0, limit=COLUMNS)
    assert told.columns is not None
    by_columns = np.sum([each.says for each in told.columns], axis=0)
    assert np.allclose(by_columns + np.array(told.rest), told.scores, atol=1e-3)


def test_graphs_with_sparse_features_are_taken_likewise():
    rows, topics = bags()
    numbers = torch.tensor([topics.index(topic) for topic in topics])
    edges = torch.tensor(ring(NODES)).t()
    sparse = csr_features(rows)
    found = []
    for given in (
        Graph.from_edges(edges, features=sparse, labels=numbers, undirected=True),
        Data(x=sparse, y=numbers, edge_index=edges, num_nodes=NODES),
        Data(x=rows, y=numbers, edge_index=edges),
    ):
        model = ContinualNodeClassifier().partial_fit(given)
        assert model.learner_.knowledge.word_columns == WORDS
        found.append(scores(model.learner_))
    array = ContinualNodeClassifier().partial_fit(
        list(range(NODES)), rows, numbers.tolist(), ring(NODES)
    )
    for each in found:
        assert torch.allclose(each, scores(array.learner_), atol=1e-5)


def test_a_folder_takes_sparse_deltas_with_keys(tmp_path):
    rows, topics = bags()
    given = csr_features(rows)
    delta = Delta(nodes=range(NODES), features=given, labels=topics, key="one")
    with LearnerFolder.open(tmp_path / "kept") as folder:
        assert folder.submit(delta) == folder.submit(delta)
        news = folder.upsert(Delta(nodes=range(NODES), features=given)).news
        assert (news.known_nodes, news.other_features) == (NODES, 0)
        changed = csr_features(vstack([rows[1], rows[1]]))
        news = folder.upsert(Delta(updated=[0, 1], updated_features=changed)).news
        assert news.updated_nodes == 1
        row = torch.from_numpy(rows[:1].toarray()).float()  # as a body of JSON has it
        folder.submit(Delta(nodes=["dense"], features=row))
        before = scores(folder.learner)
    with LearnerFolder.open(tmp_path / "kept") as again:
        assert scores(again.learner).equal(before)


def test_values_that_are_not_kept_are_said_and_wrong_ones_refused(caplog):
    many = csr_matrix(np.ones((1, PAIRS + 1))) @ csr_matrix(np.eye(PAIRS + 1, COLUMNS))
    others = csr_matrix((PAIRS, COLUMNS))
    sparse_rows.say_once.cache_clear()
    for _ in range(2):
        OnlineLearner().fitting(
            Delta(nodes=range(PAIRS + 1), features=csr_features(vstack([many, others])))
        )
    assert caplog.text.count(f"the {PAIRS} largest of a row stand for the node itself") == 1
    wrong = csr_matrix(([1.0, np.nan], ([0, 1], [4, 4999])), shape=(2, COLUMNS))
    with pytest.raises(DataError, match="but row 1, column 4999 holds nan"):
        OnlineLearner().apply(Delta(nodes="ab", features=csr_features(wrong)))
    learner = OnlineLearner()
    learner.apply(Delta(nodes=["a"], features=csr_features(others[:1])))
    with pytest.raises(DataError, match="given for 1 new nodes, 5,000 a node"):
        learner.apply(Delta(nodes=["b"]))
    with pytest.raises(DataError, match="given for 1 new nodes, 5,000 a node"):
        learner.apply(Delta(nodes=["b"], features=torch.zeros(1, 0)))  # as of ids alone


@pytest.mark.parametrize("rows", [csr_matrix(np.eye(2)), np.eye(2)])
def test_a_delta_takes_tensors(rows):
    with pytest.raises(InvalidRowsError, match="must be a tensor, dense or sparse, not"):
        Delta(nodes="ab", features=rows)
