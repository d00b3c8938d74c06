"""A comparison as one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergraph.evaluation.statistics.wilcoxon import LEAST_PAIRS

if TYPE_CHECKING:
    from evergraph.reports.comparing.comparison import Comparison


def sentence(found: Comparison) -> str:
    """Return what holds, with its numbers; percent and percentage points."""
    by_tasks = found.pairing.basis == "tasks"
    if by_tasks and found.same:
        return f"{_claim(found)}: {_numbers(found)}, both of one configuration: chance alone."
    return f"{_claim(found)}: {_numbers(found)} ({_evidence(found)}){_reach(found)}."


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
    if found.verdict in ("no difference", "cannot tell"):
        return f"{found.verdict}: {a} and {b} on {where}"
    verb = "did" if found.pairing.basis == "tasks" else "is"
    return f"{a} {verb} {found.verdict} than {b} on {where}"


def _numbers(found: Comparison) -> str:
    gap = points(found.difference.mean, signed=True)
    return f"{points(found.mean_a)} against {points(found.mean_b)}, {gap} points"


def _evidence(found: Comparison) -> str:
    interval = f"{points(found.difference.low)} to {points(found.difference.high)}"
    told = [f"{100 * found.confidence:.4g} % interval {interval}", _over(found)]
    if found.corrected_p is None:
        told.append(p_text(found.p_value))
    else:
        told.append(f"{p_text(found.corrected_p)} by Holm")
    for name, seeds in found.pairing.left_out.items():
        told.append(f"without {_seeds(seeds)}, which only {name} has")
    return ", ".join(told)


def _over(found: Comparison) -> str:
    pairing = found.pairing
    if pairing.basis == "tasks":
        return f"over {len(next(iter(found.a.tasks.values())))} tasks"
    follows = found.a.config["stream"].get("split_seed") == "run"
    of = "seeds and splits" if follows else "seeds of one split"
    if pairing.basis == "paired seeds":
        return f"{len(pairing.ours)} paired {of}"
    return f"{len(pairing.ours)} and {len(pairing.theirs)} unpaired {of}"


def _reach(found: Comparison) -> str:
    """Return how far a claim reaches that rests on tasks."""
    if found.pairing.basis != "tasks":
        return ""
    if found.verdict == "cannot tell":
        return f"; a single seed needs {LEAST_PAIRS} tasks to tell, so run both with several seeds"
    return "; with a single seed this covers these test nodes, not the randomness of learning"


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {listed([str(seed) for seed in seeds])}"
