"""Rows of views, of arrays made by hand."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from evergraph.closed_form.views import CODES, ViewRows


def view_rows(
    hops: Tensor,
    codes: Tensor | None = None,
    nodes: Tensor | None = None,
    *,
    kept: Sequence[int] = (0,),
    words: Any = None,
) -> ViewRows:
    """Return rows of some near hops side by side, and class codes."""
    coded = {} if codes is None else {(CODES,): codes}
    return ViewRows({tuple(kept): hops, **coded}, words, nodes)
