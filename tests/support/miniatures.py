"""The paper's four datasets in small, in the formats and archives of their publishers."""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse
import tomli_w

NODES, CLASSES, WIDTH = 96, 4, 12
FILES = {
    "corafull": "cora.npz",
    "arxiv": "arxiv.zip",
    "reddit": "reddit.zip",
    "products": "products.zip",
}
FACTS = {"nodes": NODES, "features": WIDTH, "classes": CLASSES, "tasks": 2}


def parts() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return edges listed once, from lower to higher [2, edges], features and labels."""
    draw = np.random.default_rng(7)
    labels = np.arange(NODES) % CLASSES
    near = np.stack([np.arange(NODES - CLASSES), np.arange(CLASSES, NODES)])  # of one class
    far = np.stack([np.arange(NODES - 1), np.arange(1, NODES)])[:, ::5]
    edges = np.unique(np.concatenate([near, far], axis=1), axis=1)
    features = np.eye(CLASSES)[labels].repeat(WIDTH // CLASSES, axis=1)
    features = features + draw.normal(size=(NODES, WIDTH)) * 0.3
    return edges, features.astype(np.float32), labels.astype(np.int64)


def published() -> dict[str, bytes]:
    """Return what each publisher sends, by the name of its file."""
    return {
        "cora.npz": _cora(),
        "arxiv.zip": _ogb("arxiv"),
        "reddit.zip": _reddit(),
        "products.zip": _ogb("products"),
    }


def catalogue(url: str) -> str:
    """Return the catalogue of the miniatures at an address, to be laid over the real one."""
    edges = parts()[0].shape[1]
    told = {
        name: FACTS
        | {
            "urls": [f"{url}/{file}"],
            "edges": edges * (1 if name == "arxiv" else 2),
            "download": 10_000,
            "room": 100_000,
            "sha256": {},
        }
        for name, file in FILES.items()
    }
    told["products"]["kept_edges"] = told["products"]["edges"]
    return tomli_w.dumps(told)


def written(folder: Path) -> Path:
    """Write what publishers send into a folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in published().items():
        (folder / name).write_bytes(content)
    return folder


def _cora() -> bytes:
    """Return the .npz of graph2gauss: adjacency and words in CSR, labels."""
    (rows, columns), features, labels = parts()
    adjacency = scipy.sparse.csr_matrix(
        (np.ones(len(rows), np.float32), (rows, columns)), shape=(NODES, NODES)
    )
    words = scipy.sparse.csr_matrix((features > 0.5).astype(np.float32))
    held = {
        f"{name}_{part}": np.asarray(getattr(matrix, part))
        for name, matrix in (("adj", adjacency), ("attr", words))
        for part in ("data", "indices", "indptr", "shape")
    }
    file = io.BytesIO()
    np.savez(file, labels=labels, **held)
    return file.getvalue()


def _reddit() -> bytes:
    """Return DGL's archive: features and labels in one .npz, the adjacency in another."""
    (rows, columns), features, labels = parts()
    data, graph = io.BytesIO(), io.BytesIO()
    types = np.arange(NODES) % 3 + 1
    np.savez(data, feature=features.astype(np.float64), label=labels, node_types=types)
    both = (np.r_[rows, columns], np.r_[columns, rows])
    scipy.sparse.save_npz(
        graph, scipy.sparse.coo_matrix((np.ones(2 * len(rows)), both), shape=(NODES, NODES))
    )
    return _zipped({"reddit_data.npz": data.getvalue(), "reddit_graph.npz": graph.getvalue()})


def _ogb(name: str) -> bytes:
    """Return OGB's archive: .csv.gz in raw, splits and a mapping beside it."""
    edges, features, labels = parts()
    split = {"arxiv": "time", "products": "sales_ranking"}[name]
    raw = {
        "edge": edges.T,
        "num-node-list": [[NODES]],
        "num-edge-list": [[edges.shape[1]]],
        "node-feat": features,
        "node-label": labels[:, None],
    }
    if name == "arxiv":
        raw["node_year"] = 2010 + np.arange(NODES)[:, None] // 10
    held = {f"{name}/raw/{file}.csv.gz": _csv(rows) for file, rows in raw.items()}
    for place, part in enumerate(("train", "valid", "test")):
        held[f"{name}/split/{split}/{part}.csv.gz"] = _csv(np.arange(place, NODES, 3)[:, None])
    held[f"{name}/mapping/README.md"] = b"ids of nodes"
    held[f"{name}/RELEASE_v1.txt"] = b""
    return _zipped(held)


def _csv(rows: object) -> bytes:
    lines = (",".join(str(value) for value in row) for row in np.asarray(rows).tolist())
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def _zipped(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), content)
    return file.getvalue()
