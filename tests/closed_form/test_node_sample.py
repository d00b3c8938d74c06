"""Which validation nodes are kept: a function of their ids alone."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form.kept_nodes import NodeSample, draw_order
from evergraph.closed_form.views import ViewRows
from view_rows import view_rows

COUNT, CLASSES = 40, 3
ids = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:COUNT]
labels = torch.randint(CLASSES, (COUNT,), generator=torch.Generator().manual_seed(1))


def rows_of(nodes: Tensor) -> ViewRows:
    """Two features and a code that tell which node it is, exactly in float16."""
    return view_rows(torch.stack([nodes, -nodes], dim=1).float(), (nodes % 7).float()[:, None])


def kept(*parts: Tensor, per_class: int = 4) -> NodeSample:
    probes = NodeSample(per_class)
    for part in parts:
        probes.keep(rows_of(ids[part]), labels=labels[part], nodes=ids[part])
    return probes


def assert_same(one: NodeSample, other: NodeSample) -> None:
    for name, tensor in one.state().items():
        assert tensor.equal(other.state()[name]), name


def assert_in_step(probes: NodeSample) -> None:
    """Rows, labels and ids are still of the same nodes."""
    expected = rows_of(probes.nodes_)
    assert probes.rows_.hops.float().equal(expected.hops)
    assert probes.rows_.codes.float().equal(expected.codes)
    place = {int(node): at for at, node in enumerate(ids)}
    assert probes.labels_.tolist() == [int(labels[place[int(node)]]) for node in probes.nodes_]


def test_of_every_class_those_that_are_first():
    probes = kept(torch.arange(COUNT))
    assert torch.bincount(probes.labels_).tolist() == [4] * CLASSES
    assert probes.nbytes == 4 * CLASSES * (2 * 3 + 2 * 8)  # two a value and sixteen a node
    assert_in_step(probes)
    order = draw_order(ids)
    for label in range(CLASSES):
        of_class = (labels == label).nonzero().flatten()
        first = ids[of_class[order[of_class].argsort()[:4]]]
        assert probes.nodes_[probes.labels_ == label].tolist() == first.tolist()


@given(order=st.permutations(range(COUNT)), cuts=st.lists(st.integers(0, COUNT), max_size=5))
def test_neither_order_nor_batches_matter(order, cuts):
    parts = torch.tensor(order).tensor_split(sorted(cuts))
    assert_same(kept(*parts), kept(torch.arange(COUNT)))


@given(mine=st.lists(st.booleans(), min_size=COUNT, max_size=COUNT), both=st.integers(0, COUNT))
def test_those_of_two_are_those_of_one_that_met_all(mine, both):
    ours = torch.tensor(mine)
    theirs = ~ours | (torch.arange(COUNT) < both)  # some are known to both
    one, other = kept(ours.nonzero().flatten()), kept(theirs.nonzero().flatten())
    one.copy_from(other)
    assert_same(one, kept(torch.arange(COUNT)))


def test_classes_may_be_called_otherwise_there():
    names = torch.tensor([2, 0, 1])
    other, here = NodeSample(4), kept((labels == 0).nonzero().flatten())
    rest = (labels != 0).nonzero().flatten()
    called = names.argsort()[labels[rest]]  # what names turns back into labels
    other.keep(rows_of(ids[rest]), labels=called, nodes=ids[rest])
    here.copy_from(other, names)
    assert_same(here, kept(torch.arange(COUNT)))


@given(gone=st.lists(st.integers(0, COUNT - 1), max_size=12))
def test_what_was_dropped_comes_back_where_it_was(gone):
    probes, some = kept(torch.arange(COUNT)), torch.tensor(sorted(set(gone)), dtype=torch.int64)
    before = probes.nodes_
    probes.drop(ids[some])
    assert not torch.isin(probes.nodes_, ids[some]).any()
    assert probes.nodes_.equal(before[~torch.isin(before, ids[some])])
    assert_in_step(probes)
    probes.keep(rows_of(ids[some]), labels=labels[some], nodes=ids[some])
    assert_same(probes, kept(torch.arange(COUNT)))


def test_all_go_and_all_come_back():
    probes, nobody = kept(torch.arange(COUNT)), torch.empty(0, dtype=torch.int64)
    assert_same(kept(torch.arange(COUNT), nobody), probes)
    probes.clear()
    assert len(probes) == len(probes.rows_) == probes.nbytes == len(kept(nobody).rows_) == 0
    probes.restore(kept(torch.arange(20)).state())
    rest = torch.arange(20, COUNT)
    probes.keep(rows_of(ids[rest]), labels=labels[rest], nodes=ids[rest])
    assert_same(probes, kept(torch.arange(COUNT)))


def test_rows_may_be_looked_up_among_others_and_have_no_codes():
    seen = rows_of(torch.arange(1000))
    probes, bare = NodeSample(4), NodeSample(4)
    probes.keep(view_rows(seen.hops, seen.codes, ids), labels=labels, nodes=ids)
    assert_same(probes, kept(torch.arange(COUNT)))
    bare.keep(view_rows(seen.hops, None, ids), labels=labels, nodes=ids)
    assert bare.rows_.codes is None
    assert bare.nodes_.equal(probes.nodes_)


def test_the_draw_does_not_favour_small_numbers():
    order = draw_order(torch.arange(10_000))
    assert order.unique().numel() == 10_000
    first = order.argsort()[:1000].double()
    assert 4700 < float(first.mean()) < 5300
