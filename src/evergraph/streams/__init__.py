"""A graph as a sequence of tasks."""

from evergraph.streams.arrival import Arrival, Split, split_classes
from evergraph.streams.stream import GraphStream
from evergraph.streams.task import Exam, Task
from evergraph.streams.ways import order_classes

__all__ = ["Arrival", "Exam", "GraphStream", "Split", "Task", "order_classes", "split_classes"]
