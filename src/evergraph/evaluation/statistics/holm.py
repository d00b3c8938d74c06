"""Many comparisons at once."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many there are (Holm 1979).

    The smallest of m is multiplied by m, the next by m - 1, and so on; none may be below one that
    was smaller before, nor above 1. Calling those below 0.05 differences makes a false claim, among
    all of them, in at most 5 of 100 cases, however they depend on each other.

    >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    least = 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[i]))
        corrected[i] = least
    return corrected
