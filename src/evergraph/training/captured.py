"""Training steps recorded once on a GPU and played back: no launch is waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from evergraph.training.batches import Batch

# Steps done in the ordinary way before one is recorded: libraries and the optimiser's state must
# be there by then.
ORDINARY = 3


class CapturedSteps:
    """Does a training step on batches, as a CUDA graph from the fourth batch of a size on.

    A small model's step is a hundred launches of kernels that each take less time than a launch.
    A recorded step is one launch. It reads its rows from one buffer, which every batch is copied
    to; batches of another size need a recording of their own, and an epoch has two sizes at most.

    Args:
        step: does one step, with no look at a number on the CPU.
        generators: those that it draws from.
    """

    def __init__(
        self, step: Callable[[Batch], None], *, generators: Sequence[torch.Generator] = ()
    ) -> None:
        self._step = step
        self._generators = generators
        self._done: dict[int, int] = {}
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Batch]] = {}
        self._stream = torch.cuda.Stream()

    def __call__(self, batch: Batch) -> None:
        """Do a step."""
        size = len(batch) if isinstance(batch, Tensor) else -1
        self._done[size] = self._done.get(size, 0) + 1
        if self._done[size] <= ORDINARY:
            self._ordinary(batch)
            return
        if size not in self._recorded:
            self._recorded[size] = self._record(batch)
        graph, rows = self._recorded[size]
        if isinstance(rows, Tensor) and isinstance(batch, Tensor):
            rows.copy_(batch)
        graph.replay()

    def _ordinary(self, batch: Batch) -> None:
        """Do a step where recordings are made: what it leaves behind is theirs to find."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step(batch)
        torch.cuda.current_stream().wait_stream(self._stream)

    def _record(self, batch: Batch) -> tuple[torch.cuda.CUDAGraph, Batch]:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        rows = batch.clone() if isinstance(batch, Tensor) else batch
        with torch.cuda.graph(graph, stream=self._stream):
            self._step(rows)
        return graph, rows
