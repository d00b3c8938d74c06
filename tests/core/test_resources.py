"""Memory as a budget."""

import psutil
import pytest
import torch

from evergraph.core.errors import ConfigurationError, ResourceError
from evergraph.core.resources import ARRAY_SHARE, Resources
from evergraph.core.sizes import parse_size

GB = 10**9


def held() -> int:
    size = psutil.Process().memory_info().rss
    return size


def test_what_is_held_counts_against_the_limit():
    limit = held() + 4 * GB

    def taken():
        before = Resources(memory_limit=limit).left
        kept = torch.ones(50_000_000)  # 200 MB
        after = Resources(memory_limit=limit).left
        assert len(kept) == 50_000_000
        return before - after

    # The system may take idle pages of this process back in the meantime, but not each time.
    assert any(taken() > 150_000_000 for _ in range(5))
    assert Resources(memory_limit=1).left == 0


def test_what_is_free_decides(monkeypatch):
    free = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert 0.5 * free.available < Resources().left < free.available
    # Only arrays that leave room stay in memory.
    resources = Resources(memory_limit=3 * held() + 4 * GB)
    assert resources.fits(int(0.5 * ARRAY_SHARE * resources.left))
    assert not resources.fits(int(2 * ARRAY_SHARE * resources.left))


def test_arrays_that_stay_leave_half_of_a_limit_to_work_in():
    class Half(Resources):
        @property
        def left(self):
            return 600

    assert Half(memory_limit=1000).fits(50)
    assert not Half(memory_limit=1000).fits(
        120
    )  # a fifth of what is left, but only 480 would remain
    assert Half().fits(120)


def test_an_array_that_does_not_fit_lies_on_disk_without_a_name(tmp_path):
    array = Resources(memory_limit=1, scratch=tmp_path).array((3, 2), torch.int32)
    assert array.shape == (3, 2)
    assert array.dtype == torch.int32
    array[:] = 7
    assert int(array.sum()) == 42
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_one_sentence():
    resources = Resources(memory_limit=held() + 100_000_000)
    resources.check(1000, "a block")
    with pytest.raises(ResourceError, match=r"^a block takes at least 5\.0 GB, but only \d+"):
        resources.check(5 * GB, "a block")


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * GB), ("4 gb", 4 * GB), ("512MiB", 2**29), ("1e9", GB), (7, 7), ("2k", 2000)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-4GB", "4 XB", "0", "1.2.3GB", "much"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigurationError, match="memory limit must be a size such as 4GB"):
        parse_size(text)
