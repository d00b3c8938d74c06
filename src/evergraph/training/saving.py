"""A learner in one file: tensors, with a description in the header.

The file is safetensors: no code is run when it is read. Its metadata hold one JSON object:

format        1
evergraph     the version that wrote it
method        the learner's name and parameters; parts among them as nested tables
label_space   setting, classes per task, and the dataset's own labels; kind and names of targets
undirected    whether every edge of the training graphs went both ways
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.core.component import SURROUNDINGS, Part
from evergraph.core.errors import ConfigurationError
from evergraph.core.extras import own_version
from evergraph.core.written_aside import results_written, written_aside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from evergraph.core.label_space import LabelSpace

FORMAT = 1
KEY = "evergraph"  # of the metadata


def save_learner(
    learner: Part,
    path: Path | str,
    *,
    state: Mapping[str, Tensor],
    label_space: LabelSpace,
    undirected: bool,
) -> None:
    """Write a learner to a file atomically; state: everything that it has learned."""
    from safetensors.torch import save

    space = asdict(label_space)
    if label_space.kind == "class" and not label_space.names:
        del space["kind"], space["names"]  # the form that earlier versions read
    about = {
        "format": FORMAT,
        "evergraph": own_version(),
        "method": description(learner),
        "label_space": space,
        "undirected": undirected,
    }
    tensors = {name: value.contiguous() for name, value in state.items()}
    content = save(tensors, metadata={KEY: json.dumps(about)})
    with results_written(Path(path)), written_aside(Path(path)) as file:
        file.write(content)


def description(part: Part) -> dict[str, Any]:
    """Return a part as JSON: its name, if it has one, and its parameters.

    >>> from evergraph.memory import EmbeddingMemory
    >>> description(EmbeddingMemory(budget=3))
    {'budget': 3, 'sampler': {'name': 'coverage', 'reach': 'auto'}}
    """
    named = {"name": part.name} if hasattr(part, "name") else {}
    inner = {k: v for k, v in part.get_params().items() if k not in SURROUNDINGS}
    for key, value in inner.items():
        try:
            inner[key] = (
                description(value) if isinstance(value, Part) else json.loads(json.dumps(value))
            )
        except TypeError:
            raise ConfigurationError(
                f"{key} of {type(part).__name__} cannot be saved: it must be text, a number or a "
                f"list of such, not {type(value).__name__}"
            ) from None
    return named | inner
