"""Feature columns so large that the others no longer count."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.core.notices import say

LOUD = 1_000.0  # times the median column's largest value
_BLOCK = 1 << 22  # values looked at together


def column_peaks(features: Tensor) -> Tensor:
    """Return the largest absolute value of each column, in one pass.  [n, d] -> float32 [d]

    >>> column_peaks(torch.tensor([[1.0, -5.0], [2.0, 0.0]]))
    tensor([2., 5.])
    """
    peaks = torch.zeros(features.shape[1])
    if features.layout == torch.sparse_csr:
        columns, values = features.col_indices().long(), features.values().abs().float()
        return peaks.scatter_reduce_(0, columns, values, "amax")
    rows = max(_BLOCK // max(features.shape[1], 1), 1)
    for start in range(0, len(features), rows):
        block = features[start : start + rows].float()
        # Two passes over a block in cache, but no copy of it as abs() would make.
        torch.maximum(peaks, torch.maximum(block.amax(0), -block.amin(0)), out=peaks)
    return peaks


def loud_column(peaks: Tensor, names: Sequence[str] | None = None) -> str | None:
    """Say which column is ``LOUD`` times as large as the median one, None where none is.

    Columns of zeros are left out. names: of the columns; numbers from 0 on unless given.

    >>> loud_column(torch.tensor([1.0, 2.0, 3e6]), ["age", "ratio", "income"])
    "feature column 'income' reaches 3e+06, 1,500,000 times what the median column reaches (2): it \
drowns the others, so standardise the features"
    >>> loud_column(torch.tensor([1.0, 2.0, 300.0]))
    """
    filled = peaks[peaks > 0]
    if len(filled) < 2:
        return None
    median, place = float(filled.median()), int(peaks.argmax())
    times = float(peaks[place]) / median
    if times < LOUD:
        return None
    name = f"{place} (counted from 0)" if names is None else repr(names[place])
    others = int((peaks >= LOUD * median).sum()) - 1
    more = f" (and so {'does' if others == 1 else 'do'} {others} more)" if others else ""
    return (
        f"feature column {name} reaches {float(peaks[place]):g}, {times:,.0f} times what the "
        f"median column reaches ({median:g}){more}: it drowns the others, so standardise the "
        "features"
    )


def say_loud_column(where: object, peaks: Tensor, names: Sequence[str] | None = None) -> None:
    """Log what ``loud_column`` says, if it says anything."""
    sentence = loud_column(peaks, names)
    if sentence is not None:
        say(where, sentence)
