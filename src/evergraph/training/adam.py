"""Adam on the CPU, without torch's compiler."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Adam:
    """Adam or AdamW with the bits of ``torch.optim`` and ``fused=True``.

    The first optimiser of ``torch.optim`` in a process imports torch's compiler, which takes as
    long as importing torch. Its kernels, called here, do not need it.

    Args:
        parameters: float32, on the CPU; those without a gradient are left alone.
        lr: learning rate, which may be changed between steps.
        weight_decay: L2 penalty.
        decoupled: whether the penalty shrinks weights directly (AdamW), or is part of the gradient.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, lr: float, weight_decay: float, decoupled: bool
    ) -> None:
        self.parameters = list(parameters)
        self.lr = lr
        self.weight_decay = weight_decay
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self._kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Drop the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Follow the gradients by one step."""
        moved: list[Tensor] = []
        slopes: list[Tensor] = []
        for parameter in self.parameters:
            if parameter.grad is None:
                continue
            moved.append(parameter)
            slopes.append(parameter.grad)
            if parameter not in self.state:
                self.state[parameter] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in moved]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        self._kernel(
            moved,
            slopes,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=self.lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
