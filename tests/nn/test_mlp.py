"""f_out: by hand, and what growing and dropout may and may not change."""

import pytest
import torch
from torch import Tensor

from evergraph.nn import MLP
from graphs_to_draw import generator


def head_of(dims: int = 3, classes: int = 2, *, seed: int = 0, **options: object) -> MLP:
    head = MLP(dims, generator=generator(seed), **options)
    head.grow(classes, generator=generator(seed + 1))
    return head


def put(layer: torch.nn.Module, weight: list[list[float]], bias: list[float] | None) -> None:
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))


INPUTS = torch.tensor([[1.0, 2.0], [3.0, 1.0], [-1.0, 1.0]])


def test_a_forward_pass_by_hand():
    head = head_of(2, 2, hidden=(2,))
    put(head.hidden[0], [[1, 0], [1, -1]], [0, 1])
    put(head.out, [[2, 3], [-1, 2]], [0.5, 0])
    # before the ReLU: [1, 0], [3, 3], [-1, -1]
    assert head(INPUTS).tolist() == [[2.5, -1.0], [15.5, 3.0], [0.5, 0.0]]
    head = head_of(2, 1, hidden=(2,), bias=False)
    put(head.hidden[0], [[1, 0], [1, -1]], None)
    put(head.out, [[2, 3]], None)
    # before the ReLU: [1, -1], [3, 2], [-1, -2]
    assert head(INPUTS).tolist() == [[2.0], [12.0], [0.0]]
    assert all(not name.endswith("bias") for name, _ in head.named_parameters())
    head = head_of(2, 2, hidden=())  # linear
    put(head.out, [[1, -1], [0, 2]], [0, 1])
    inputs = INPUTS.clone()
    assert head(inputs).tolist() == [[-1.0, 5.0], [2.0, 3.0], [-2.0, 3.0]]
    assert inputs.equal(INPUTS)
    assert len(list(head.parameters())) == 2
    head = head_of(3, 4, hidden=(5, 6))
    shapes = [tuple(p.shape) for name, p in head.named_parameters() if name.endswith("weight")]
    assert sorted(shapes) == [(4, 6), (5, 3), (6, 5)]
    assert head(torch.zeros(7, 3)).shape == (7, 4)
    assert MLP(3, generator=generator()).hidden[0].weight.shape == (256, 3)


def new_rows(seed: int) -> Tensor:
    head = head_of(3, 2, hidden=(4,))
    head.grow(5, generator=generator(seed))
    return torch.cat([head.out.weight[2:], head.out.bias[2:, None]], 1).detach()


def test_new_rows_come_from_the_generator_given():
    assert new_rows(3).equal(new_rows(3))
    assert not (new_rows(3) == new_rows(4)).any()
    assert new_rows(3).unique().numel() == 3 * 5  # every weight is a draw of its own
    assert float(new_rows(3).abs().max()) <= 4**-0.5


def test_weights_start_uniform_within_one_over_the_root_of_the_fan_in():
    head = head_of(16, 40, hidden=(64,))
    bounds = {
        "hidden.0.weight": 0.25,
        "hidden.0.bias": 0.25,
        "out.weight": 0.125,
        "out.bias": 0.125,
    }
    for name, value in head.state_dict().items():
        bound = bounds[name]
        assert float(value.abs().max()) <= bound
        # the second moment of a uniform law is bound²/3; 40 draws at the least
        sigma = bound**2 * (4 / 45 / value.numel()) ** 0.5
        assert abs(float(value.square().mean()) - bound**2 / 3) < 4 * sigma


def unit_head(dropout: float) -> MLP:
    """One hidden unit that hands its input on."""
    head = head_of(1, 1, hidden=(1,), bias=False, dropout=dropout)
    put(head.hidden[0], [[1]], None)
    put(head.out, [[1]], None)
    return head


def test_dropout_drops_its_share_and_keeps_the_mean():
    count, dropout = 20_000, 0.25  # a number of 256ths, to which the rate is rounded
    outputs = unit_head(dropout).train()(torch.ones(count, 1), generator=generator()).detach()
    assert outputs.unique().tolist() == pytest.approx([0.0, 4 / 3])  # 1 / 0.75
    sigma = (dropout * (1 - dropout) / count) ** 0.5
    assert abs(float((outputs == 0).double().mean()) - dropout) < 4 * sigma
    assert abs(float(outputs.double().mean()) - 1.0) < 4 * sigma / (1 - dropout)
    for whole in (unit_head(0.5).eval(), unit_head(0.0).train()):
        assert whole(torch.ones(64, 1)).equal(torch.ones(64, 1))
