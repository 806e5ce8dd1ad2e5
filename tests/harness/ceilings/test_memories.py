"""Which memories a run measures, and what is said of one that cannot be."""

from types import SimpleNamespace
from typing import Any

import pytest

from backends.base import Accelerator, EngineInfo
from harness.ceilings.memories import HOST, is_remote, memories
from harness.estimate import Rates
from harness.machine.bandwidth import measured as bandwidth
from harness.machine.hardware import inspect
from harness.models.source import resolve
from harness.options import Options
from harness.progress import Reporter
from harness.work import combinations

pytestmark = pytest.mark.usefixtures("known_bandwidth")
TIER = Accelerator("RPC0", "RPC device 0", 2**34)
NOBODY = "nobody.invalid:50052"  # a name that no resolver knows


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = bandwidth.Worker
    monkeypatch.setattr(bandwidth, "Worker", lambda job: worker({**job, "most_bytes": 2**20, "budget_s": 0}))
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _plan(*accelerators: Accelerator, **options: Any) -> Any:
    engines = {"llama.cpp": EngineInfo("1", "build", accelerators)}
    works = tuple(combinations(Options(**options), [resolve("gpt2-mini")], engines))
    return SimpleNamespace(works=works, machine=inspect())


def test_what_cannot_be_measured_has_a_reason_that_names_no_machine() -> None:
    found = memories(_plan(TIER, rpc=NOBODY), Reporter())
    assert set(found) == {HOST, "RPC0"}
    assert found[HOST].measured is not None
    tier = found["RPC0"]
    assert (tier.measured, tier.spec_bytes_s) == (None, None)
    assert "does not tell which memory it is" in tier.spec_source
    assert tier.unmeasured is not None
    assert "the memory of RPC device 0 cannot be measured" in tier.unmeasured
    assert "nobody.invalid" not in tier.unmeasured
    assert "HOST:50052" in tier.unmeasured


def test_only_the_devices_that_may_be_used_are_measured() -> None:
    assert set(memories(_plan(TIER, rpc=NOBODY, device="cpu"), Reporter())) == {HOST}


def test_a_tier_is_told_by_its_id() -> None:
    assert is_remote(TIER)
    assert not any(map(is_remote, (Accelerator("CUDA0", "a GPU"), Accelerator("cuda:0", "a GPU"))))
