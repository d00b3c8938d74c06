"""A folder of two nodes that stay and two that are forgotten, and what its files hold of those."""

from pathlib import Path

import torch

import growth
from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead
from evergraph.online.learner import OnlineLearner

NUMBER = 987_654_321_012_345
ROW = torch.tensor([[0.12345679, 7.654321, -3.1415927]])
SECRETS = {
    "id": b"secret-id",
    "integer id": str(NUMBER).encode(),
    "integer id in bits": NUMBER.to_bytes(8, "little"),
    "features": ROW.numpy().tobytes(),
    "other features": (2 * ROW).numpy().tobytes(),
    "features of length 1": (ROW / ROW.norm()).numpy().tobytes()[:8],
    "key": b"secret-key",
    "label": b"secret-class",
}
TWO = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.25]])
FIRST = Delta(nodes="ab", features=TWO, labels="xy", edges=(("a", "b"),), key="k")


def opened(path: Path, head: type = AnalyticHead, **options) -> LearnerFolder:
    return LearnerFolder.open(path, make=lambda: OnlineLearner(head=head(width=16)), **options)


def fill(folder: LearnerFolder) -> None:
    """Two nodes that stay, two that are forgotten, and snapshots in between."""
    folder.submit(FIRST)
    told = {"labels": ("secret-class", "x"), "edges": (("secret-id", "a"), (NUMBER, "secret-id"))}
    both = torch.cat([ROW, 2 * ROW])
    folder.submit(Delta(nodes=("secret-id", NUMBER), features=both, key="secret-key", **told))
    folder.compact()
    folder.submit(Delta(forgotten=("secret-id", NUMBER)))
    folder.compact()


def found_in(path: Path) -> set[str]:
    """Return which of the secrets the files of a folder hold."""
    files = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    return {name for name, secret in SECRETS.items() if any(secret in data for data in files)}


def bits(folder: LearnerFolder) -> dict[str, bytes]:
    return growth.bits(folder.learner)


def more(folder: LearnerFolder) -> None:
    """One more node, of a class that was forgotten."""
    row = torch.full((1, 3), 0.3)
    folder.submit(Delta(nodes="z", features=row, labels=("again",), edges=(("z", "a"),)))
