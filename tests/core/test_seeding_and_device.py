"""Draws come from the generator given and from nowhere else; devices are found or refused."""

import hashlib
import math

import pytest
import torch

from evergraph.core.errors import DeviceError, UnknownNameError
from evergraph.core.resources import choose_device, peak_rss_bytes
from evergraph.core.seeding import exponential, seeded


def draws(*purpose: str | int) -> list[float]:
    return torch.rand(4, generator=seeded(*purpose)).tolist()


def test_draws_depend_on_seed_and_purpose():
    cases = [(3,), (4,), (3, "split"), (3, "head"), (3, "split", 1), (3, "split", 2), (3, 1)]
    assert len({tuple(draws(*case)) for case in cases}) == len(cases)
    # Seeds do not come from pythons own hash which changes from run to run.
    digest = hashlib.sha256(b"7/split/3").digest()
    assert seeded(7, "split", 3).initial_seed() == int.from_bytes(digest[:8], "big") // 2
    # The global generator is neither read nor moved.
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = exponential(3, generator=seeded(0))
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(2)
    assert exponential(3, generator=seeded(0)).equal(first)


def test_exponential_variates_follow_their_law():
    count = 20_000
    times = exponential(count, generator=seeded(0, "law"))
    assert times.dtype == torch.float64
    assert times.shape == (count,)
    assert bool((times > 0).all())
    for limit in (0.5, 1.0, 2.0):  # P(T > t) = e^-t
        chance = math.exp(-limit)
        sigma = (chance * (1 - chance) / count) ** 0.5
        assert abs(float((times > limit).double().mean()) - chance) < 4 * sigma


def test_exponential_variates_are_never_zero(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, generator: self.zero_())
    assert bool((exponential(3, generator=seeded(0)) > 0).all())


@pytest.mark.parametrize(("present", "found"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_a_gpu(present, found, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    assert choose_device().type == found
    assert choose_device("auto").type == found
    assert choose_device("cpu").type == "cpu"


def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("cuda").type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="torch finds no CUDA device"):
        choose_device("cuda")


def test_an_unknown_device_lists_those_that_exist():
    with pytest.raises(UnknownNameError, match=r"unknown device 'tpu': .*auto, cpu, cuda"):
        choose_device("tpu")


def test_peak_memory_is_in_bytes_and_never_falls():
    before = peak_rss_bytes()
    block = torch.ones(8_000_000)  # 32 MB
    after = peak_rss_bytes()
    assert after >= before
    assert after > block.nbytes  # kilobytes would be a thousand times too few
    assert after < 1 << 42
