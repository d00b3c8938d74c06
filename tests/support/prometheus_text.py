"""A strict reader of Prometheus' text format, as ``promtool check metrics`` reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
LABELS = rf"\{{({LABEL}(?:,{LABEL})*)\}}"
SAMPLE = re.compile(rf"({NAME})(?:{LABELS})? (\S+)")
KINDS = ("counter", "gauge", "histogram")
PARTS = ("_bucket", "_sum", "_count")  # of a histogram


@dataclass
class Metric:
    """What is told under one name: samples by their labels."""

    help: str
    kind: str = ""
    samples: dict[tuple[str, str], float] = field(default_factory=dict)


def read_metrics(text: str) -> dict[str, Metric]:
    """Return all metrics by name; raise where a line is not as it must be."""
    assert text.endswith("\n")
    assert "\r" not in text
    found: dict[str, Metric] = {}
    open_now = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, open_now, said = line.split(" ", 3)
            assert open_now not in found, f"{open_now} is described twice"
            assert re.fullmatch(NAME, open_now), line
            assert said.endswith("."), line
            found[open_now] = Metric(said)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == open_now, f"the type of {name} does not follow its description"
            assert kind in KINDS, line
            assert not found[name].kind, f"{name} has two types"
            found[name].kind = kind
            assert (kind == "counter") == name.endswith("_total"), line
        else:
            _take(found[open_now], open_now, line)
    return found


def _take(metric: Metric, name: str, line: str) -> None:
    sample = SAMPLE.fullmatch(line)
    assert sample, f"no sample: {line!r}"
    own, labels, value = sample[1], sample[2] or "", float(sample[sample.lastindex or 0])
    assert metric.kind, f"{name} has no type before its first sample"
    allowed = [name + part for part in PARTS] if metric.kind == "histogram" else [name]
    assert own in allowed, f"{line!r} stands under {name}"
    names = [label for label, _ in re.findall(LABEL, labels)]
    assert len(set(names)) == len(names), line
    key = own, labels
    assert key not in metric.samples, f"{line!r} is there twice"
    metric.samples[key] = value
