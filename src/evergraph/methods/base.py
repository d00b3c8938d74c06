"""The registry of methods, and learners that ``Learner.save`` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from evergraph.core.component import Resolver
from evergraph.core.errors import DataError
from evergraph.core.label_space import LabelSpace
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.training import Trainer
from evergraph.training.learner import FORMAT, KEY

methods = Resolver[BackboneLearner]("method")


def load_learner(path: Path | str, *, device: str | None = None) -> BackboneLearner:
    """Return the learner in a file; its predictions and further training continue unchanged.

    Register your own methods first. Results are identical to the bit on the same kind of device.

    Args:
        path: the file written by ``Learner.save``.
        device: ``auto``, ``cpu`` or ``cuda``; by default the learner's own, or the CPU if the
            learner used a GPU and there is none.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path), framework="pt") as file:
            about = json.loads((file.metadata() or {})[KEY])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except (SafetensorError, KeyError, ValueError):
        raise DataError(f"{path} is not a learner saved by evergraph") from None
    if about.get("format") != FORMAT:
        raise DataError(
            f"{path} has format {about.get('format')!r}, written by evergraph "
            f"{about.get('evergraph')}, but this version reads {FORMAT}"
        )
    try:
        space = about["label_space"]
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in space.items()
        }
        label_space = LabelSpace(**given)
        learner = _made(about["method"], device)
        learner.restore(state, label_space)
        learner.undirected_ = bool(about["undirected"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{path} does not hold a whole learner: {error}") from error
    return learner


def _made(description: Mapping[str, Any], device: str | None) -> BackboneLearner:
    parameters = dict(description)
    name = parameters.pop("name")
    training = dict(parameters.pop("trainer"))
    wanted = training.pop("device") if device is None else device
    if device is None and wanted == "cuda" and not torch.cuda.is_available():
        wanted = "cpu"
    if isinstance(memory := parameters.get("memory"), Mapping):  # else a number of bytes
        parameters["memory"] = methods.resolve(name).make_memory(**memory)
    trainer = Trainer(**{**training, "device": wanted})
    return methods.make(name, **parameters, trainer=trainer, generator=torch.Generator())
