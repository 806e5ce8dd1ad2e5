"""What is wrong with a machine, and the line that mends it."""

import platform

import pytest

from backends.base import Accelerator, EngineInfo
from harness.machine import pci
from harness.machine.hardware import Gpu, Machine
from harness.machine.report import Report, report_on

RTX_4090 = Gpu("nvidia", "NVIDIA GeForce RTX 4090", 24564 * 2**20)
CUDA = Accelerator("cuda:0", "NVIDIA GeForce RTX 4090", 24564 * 2**20)
WORKING = {
    "torch": EngineInfo("2.11.0", "cu130", (CUDA,)),
    "mlx": EngineInfo("0.30", "CUDA", (Accelerator("gpu", CUDA.name),)),
    "llama.cpp": EngineInfo("0.3.36", "CUDA", (Accelerator("CUDA0", CUDA.name),)),
}


@pytest.fixture(autouse=True)
def _on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")


def _report(described: dict[str, EngineInfo | str], *gpus: Gpu, cards: list[pci.Card] | None = None) -> Report:
    return report_on(Machine("Linux 6 x86_64", "Intel(R) Xeon(R)", 2, 2**34, gpus), described, cards or [])


def test_a_good_machine_has_nothing_to_mend() -> None:
    report = _report(dict(WORKING), RTX_4090)
    assert report.problems == ()
    (accelerator,) = report.accelerators
    assert (accelerator.catalog_id, accelerator.bandwidth_spec_gbs) == ("rtx-4090", 1008)
    assert report.host.memory_bytes == 2**34
    assert report.host.bandwidth_spec_gbs is None


def test_an_engine_built_without_the_gpu_gets_its_line() -> None:
    (problem,) = _report(WORKING | {"llama.cpp": EngineInfo("0.3.36", "CPU")}, RTX_4090).problems
    assert problem.what == "llama.cpp cannot use this machine's NVIDIA GeForce RTX 4090"
    assert problem.fix == ('CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir llama-cpp-python')


def test_a_broken_engine_says_why_and_the_others_are_told() -> None:
    report = _report(WORKING | {"torch": "libcudart.so.13: cannot open shared object file"}, RTX_4090)
    (problem,) = report.problems
    assert problem.what == "torch cannot be loaded: libcudart.so.13: cannot open shared object file"
    assert problem.fix == "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"
    assert [engine.version for engine in report.engines] == [None, "0.30", "0.3.36"]
    (problem,) = _report({"mlx": "ImportError: broken"}).problems
    assert problem.fix == 'pip install --force-reinstall --no-cache-dir "tokenroof[mlx]"'


def test_a_card_without_its_driver_is_seen() -> None:
    cards = [pci.Card("nvidia", "GeForce RTX 4090", None, integrated=False)]
    (problem,) = _report(dict(WORKING), cards=cards).problems
    assert problem.what == "GeForce RTX 4090 is on the PCI bus, but NVIDIA's driver does not answer"
    assert _report(dict(WORKING), RTX_4090, cards=cards).problems == ()


def test_no_engine_is_a_problem_and_no_crash() -> None:
    report = _report({})
    assert [engine.installed for engine in report.engines] == [False, False, False]
    assert [problem.fix for problem in report.problems] == ['pip install "tokenroof[all]"']


def test_a_gpu_that_only_an_engine_sees_is_listed() -> None:
    # Windows with a Radeon: nothing but the engine's own registry names it.
    radeon = Accelerator("Vulkan0", "AMD Radeon RX 7900 XTX", 24 * 2**30)
    report = _report({"llama.cpp": EngineInfo("0.3.36", "Vulkan", (radeon,))})
    assert [(memory.name, memory.catalog_id) for memory in report.accelerators] == [(radeon.name, "rx-7900-xtx")]
    assert report.problems == ()
