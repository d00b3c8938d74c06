"""A comparison as one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evergraph.reports.comparing.comparison import Comparison

REMEDIES = {
    "one seed": ", which shows no spread: run both with at least 2 of the same seeds",
    "identical repeats": ", which count as one: stream.split_seed=run gives every seed its split",
}


def sentence(found: Comparison) -> str:
    """Return what holds, with its numbers; percent and percentage points."""
    return f"{_claim(found)}: {_numbers(found)} ({_evidence(found)})."


def p_text(p_value: float) -> str:
    """Return a p-value as people write it.

    >>> p_text(0.0004), p_text(0.0213), p_text(1.0)
    ('p < 0.001', 'p = 0.021', 'p = 1.000')
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def points(difference: float, *, signed: bool = False) -> str:
    """Return a fraction as percentage points; what is rounded to nothing has no sign.

    >>> points(0.768, signed=True), points(-0.0123), points(-0.0001, signed=True)
    ('+76.8', '-1.2', '0.0')
    """
    text = f"{100 * difference:+.1f}" if signed else f"{100 * difference:.1f}"
    return "0.0" if float(text) == 0 else text


def listed(words: list[str]) -> str:
    """Return words as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _claim(found: Comparison) -> str:
    a, b, where = found.a.name, found.b.name, found.a.where
    if found.verdict in ("better", "worse"):
        return f"{a} is {found.verdict} than {b} on {where}"
    return f"cannot tell {a} from {b} on {where}"


def _numbers(found: Comparison) -> str:
    gap = points(found.difference.mean, signed=True)
    return f"{points(found.mean_a)} against {points(found.mean_b)}, {gap} points"


def _evidence(found: Comparison) -> str:
    if not found.pairing.shows_spread:
        return f"{found.verdict}{REMEDIES[found.verdict]}"
    interval = f"{points(found.difference.low)} to {points(found.difference.high)}"
    told = [f"{100 * found.confidence:.4g} % interval {interval}", _over(found)]
    told.append(p_text(found.p_value))
    if found.corrected_p is not None:
        told.append("interval and p corrected by Holm")
    for name, seeds in found.pairing.left_out.items():
        told.append(f"without {_seeds(seeds)}, which only {name} has")
    return ", ".join(told)


def _over(found: Comparison) -> str:
    pairing = found.pairing
    follows = found.a.config["stream"].get("split_seed") == "run"
    of = "seeds and splits" if follows else "seeds of one split"
    counts = len(pairing.ours), len(pairing.theirs)
    told = f"{counts[0]} paired {of}"
    if pairing.basis == "unpaired seeds":
        told = f"{counts[0]} and {counts[1]} unpaired {of}"
    same = (len(pairing.a), len(pairing.b)) == counts
    return told if same else f"{told}, identical repeats counted once"


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {listed([str(seed) for seed in seeds])}"
