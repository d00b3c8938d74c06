"""How much memory a head takes for a delta, before it is applied."""

from __future__ import annotations

from evergraph.closed_form.view_map import BLOCK_VALUES as FEATURES_AT_A_TIME
from evergraph.online.heads.fused import LEFT_OUT_NODES, LEFT_OUT_SCORES, FusedHead
from evergraph.online.heads.scorer import BLOCK_VALUES as VALUES_AT_A_TIME

VIEWS = 3  # by default, which is not known before the first delta


def bytes_for(head: FusedHead, *, nodes: int, counted: int, classes: int, new: int) -> int:
    """Return the bytes of sums, V and a_v V_v, of copies, and of a block of nodes.

    nodes: labelled ones, including those of the delta; counted: how many of these it learns or
    moves; classes: including those of the delta; new: how many of these are new.
    """
    views = max(len(head.parsed), VIEWS)
    per_new_class = views * 3 * 8
    # per view a_v V_v of readers, a_v V_v and V; for one view sums, means and their products
    per_class = views * 3 * 8 + 4 * 8
    width = head.width_for(nodes)
    rows = width * (per_new_class * new + per_class * classes + 3 * 8 * width)
    if head.basis == "landmarks":  # a new set, and its kernel matrix
        dims = sum(head.engine.map.sizes.values()) if head.engine.sums_ else 0
        rows += width * (views * 2 * 4 * width + 3 * 4 * dims)
    block = min(counted * width, FEATURES_AT_A_TIME)
    # At least so many classes have a single node, which is not left out.
    singletons = max(2 * classes - nodes, 0) if head.least_left_out > 1 else 0
    left_out = min(
        min(max(nodes - singletons, 0), LEFT_OUT_NODES) * classes * views, LEFT_OUT_SCORES
    )
    total = rows + 5 * 8 * block + 3 * 8 * left_out + 8 * head.codes * new
    if not head.target.is_class:  # the values of a block of nodes
        total += 6 * 8 * min(counted * classes, VALUES_AT_A_TIME) + 4 * 8 * width * classes
    return total
