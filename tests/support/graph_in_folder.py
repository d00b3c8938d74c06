"""A graph as it is opened from a folder that it was written to."""

from pathlib import Path

from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import GraphFolderWriter, open_graph_folder


def written(graph: Graph, folder: Path) -> Graph:
    writer = GraphFolderWriter(folder)
    for name in ("indptr", "indices", "features", "labels", "weights"):
        array = getattr(graph, name)
        if array is not None:
            writer.create(name, tuple(array.shape), array.dtype).copy_(array)
    writer.finish(undirected=graph.undirected)
    return open_graph_folder(folder, verify=True)
