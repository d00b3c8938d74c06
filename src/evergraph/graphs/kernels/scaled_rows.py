"""What the kernels multiply by: a scaled adjacency that is never written out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evergraph.core.mapped import page_out
from evergraph.graphs.kernels.choice import Kernel
from evergraph.graphs.kernels.held_rows import RowType
from evergraph.graphs.normalisation import written_out

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Â = L (A + sI) R with diagonal L and R, over the graph's own arrays; or some of its rows.

    Attributes:
        indptr: where each row begins in ``indices``.  [rows + 1]
        indices: the graph's own, all of them.  int32 [edges]
        left: the diagonal of L.  float32 [rows]
        right: the diagonal of R.  float32 [columns]
        self_loops: whether s is 1, else 0.
        first: which row of the whole the first row is.
        mapped: whether ``indices`` lie in a file, so that pages leave memory once they are read.
        kernel: who multiplies where it can; part of a whole keeps the whole's.
        weights: of the entries of A, in the order of ``indices``; all 1 if None.  float32 [edges]
        held: what rows of R X are held in while they are summed; sums are float32.
        scaled: whether features come multiplied by R already: see ``held_rows``.
    """

    indptr: Tensor
    indices: Tensor
    left: Tensor
    right: Tensor
    self_loops: bool = True
    first: int = 0
    mapped: bool = False
    kernel: Kernel = "torch"
    weights: Tensor | None = None
    held: RowType = "float32"
    scaled: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns."""
        return len(self.left), len(self.right)

    @property
    def device(self) -> torch.device:
        """Where the arrays live."""
        return self.indices.device

    @cached_property
    def matrix(self) -> Tensor:
        """Â with its weights written out, made once.  ``torch.sparse_csr`` [rows, columns]

        Without R if that is in the features.
        """
        own = None
        if self.self_loops:
            last = self.first + len(self.left)
            own = torch.arange(self.first, last, dtype=torch.int32, device=self.device)
        indptr = self.indptr - self.indptr[0]
        every = slice(0, len(self.left))
        return written_out(
            indptr,
            self.entries(every),
            left=self.left,
            right=torch.ones_like(self.right) if self.scaled else self.right,
            own=own,
            weights=self.entry_weights(every),
        )

    def rows(self, part: slice) -> Self:
        """Return Â of some rows only, in views: nothing is copied."""
        start, stop, _ = part.indices(len(self.left))
        return replace(
            self,
            indptr=self.indptr[start : stop + 1],
            left=self.left[start:stop],
            first=self.first + start,
        )

    def entries(self, part: slice) -> Tensor:
        """Return the neighbours listed in some rows, self-loops aside.  int32 [entries]"""
        return self.indices[self._span(part)]

    def entry_weights(self, part: slice) -> Tensor | None:
        """Return their weights, if they have any.  float32 [entries]"""
        return None if self.weights is None else self.weights[self._span(part)]

    def let_go(self, part: slice) -> None:
        """Let the pages of some rows leave memory, once they were read, if they lie in a file."""
        if self.mapped:
            page_out(self.entries(part))
            weights = self.entry_weights(part)
            if weights is not None:
                page_out(weights)

    def _span(self, part: slice) -> slice:
        return slice(int(self.indptr[part.start]), int(self.indptr[part.stop]))
