"""How many threads compute.

Tier: closed form. Cannot see how many a library really starts (native/tests/test_thread_pool.c counts ours).
"""

import pytest
import torch

from core.errors import KernelError
from core.kernels.backend import CancelFlag
from core.kernels.choose import open_backend
from core.kernels.threads import available_processors, default_threads


def test_threads_leave_one_processor_free_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("VIGNETTE_THREADS", raising=False)
    for cores, expected in ((1, 1), (2, 2), (3, 2), (8, 7)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert default_threads() == expected
    monkeypatch.setenv("VIGNETTE_THREADS", "3")
    assert default_threads() == 3
    for wrong in ("0", "257", "-1", "two", ""):
        monkeypatch.setenv("VIGNETTE_THREADS", wrong)
        with pytest.raises(KernelError, match="expected a number from 1 to 256"):
            default_threads()


def test_without_affinity_all_processors_count(monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    for cores, expected in ((8, 8), (None, 1)):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        assert available_processors() == expected


def test_torch_follows_the_same_rule_when_it_computes(monkeypatch):
    before = torch.get_num_threads()
    wanted = before + 1
    monkeypatch.setenv("VIGNETTE_THREADS", str(wanted))
    try:
        open_backend("reference", CancelFlag())
        assert torch.get_num_threads() == wanted
    finally:
        torch.set_num_threads(before)
