"""What a result says of its data, versions and machine: known before anything is learned."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from typing import Any

import torch

from evergraph.core.device import choose_device
from evergraph.core.extras import installed_version
from evergraph.graphs import Graph, homophily
from evergraph.streams import GraphStream

NEEDED, OPTIONAL = ("evergraph", "torch", "numpy", "scipy"), ("torch-geometric",)


def facts_of(graph: Graph, stream: GraphStream, device: str) -> dict[str, Any]:
    """Return all of it, by the names that a result has for it."""
    return {
        "dataset": describe(graph, stream),
        "versions": versions(),
        "machine": machine(device),
    }


def describe(graph: Graph, stream: GraphStream) -> dict[str, Any]:
    """Return the facts of a graph and its stream as plain values."""
    facts: dict[str, Any] = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "homophily": homophily(graph),
        "tasks": len(stream.tasks),
        **({"steps": len(stream)} if len(stream) > len(stream.tasks) else {}),
        "task_classes": [list(classes) for classes in stream.tasks],
    }
    if graph.targets is not None:
        known = float(graph.targets.known.float().mean())
        facts["targets"] = {
            "kind": graph.targets.kind, "names": list(graph.targets.names), "known": known
        }  # fmt: skip
    return facts


def machine(device: str) -> dict[str, Any]:
    """Return what a run with this device runs on, as far as the system tells."""
    facts: dict[str, Any] = {
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    with suppress(ImportError):
        import psutil

        facts["memory"] = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    if choose_device(device).type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def versions() -> dict[str, str]:
    """Return the versions that a result depends on, of what is installed."""
    found = {name: installed_version(name) for name in (*NEEDED, *OPTIONAL)}
    told = {name: found[name] or "unknown" for name in NEEDED}
    told |= {name: version for name in OPTIONAL if (version := found[name])}
    return {"python": platform.python_version()} | told
