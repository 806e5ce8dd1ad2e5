"""Which engines run on which machine; the engines' own word on what they can use is given, since it takes real GPUs."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from backends.base import Accelerator, EngineInfo
from backends.registry import BACKENDS, ENGINES
from harness.engine_choice import choose
from harness.errors import UserError
from harness.machine.hardware import Gpu, Machine
from harness.options import Options

Describe = Callable[..., None]

CPU_BUILD = EngineInfo("1.0", "CPU")
RTX_5090 = Gpu("nvidia", "NVIDIA GeForce RTX 5090", 32 * 2**30)
M4_MAX = Gpu("apple", "Apple M4 Max", None)
RADEON = Gpu("amd", "AMD Radeon", 16 * 2**30)


def _build_for(*ids: str) -> EngineInfo:
    return EngineInfo("1.0", "GPU", tuple(Accelerator(each, "a GPU") for each in ids))


def _machine(*gpus: Gpu) -> Machine:
    return Machine(os="Linux", cpu="a CPU", physical_cores=8, ram_bytes=2**35, gpus=gpus)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Describe:
    """Say which engines are installed, and what each of them says of itself: a description or why it is broken."""

    def say(**said: EngineInfo | str) -> None:
        answers = {name.replace("llama_cpp", "llama.cpp"): answer for name, answer in said.items()}

        def describe(names: Iterable[str], _: tuple[str, ...]) -> dict[str, EngineInfo | str]:
            return {name: answers[name] for name in names}

        monkeypatch.setattr("harness.engine_choice.describe", describe)
        for name in ENGINES:
            needs = () if name in answers else ("a_module_that_is_not_installed",)
            monkeypatch.setitem(BACKENDS, name, replace(BACKENDS[name], requires=needs))

    return say


@pytest.mark.parametrize(
    ("backend", "gpu", "system", "line"),
    [
        ("torch", RTX_5090, "Linux", r"pip install --force-reinstall torch --index-url \S+/whl/cu\d+ "),
        ("torch", RTX_5090, "Windows", r"pip install --force-reinstall torch --index-url \S+/whl/cu\d+ "),
        ("torch", RADEON, "Linux", r"pip install --force-reinstall torch --index-url \S+/whl/rocm[\d.]+ "),
        ("torch", M4_MAX, "Darwin", r"pip install --force-reinstall torch \("),
        ("mlx", RTX_5090, "Linux", r'pip install "mlx\[cuda13\]"'),
        ("mlx", M4_MAX, "Darwin", r"pip install --force-reinstall mlx "),
        ("llama_cpp", RTX_5090, "Linux", r'CMAKE_ARGS="-DGGML_CUDA=on" pip install .*llama-cpp-python'),
        ("llama_cpp", RTX_5090, "Windows", r'\$env:CMAKE_ARGS = "-DGGML_CUDA=on"; pip install .*llama-cpp-python'),
        ("llama_cpp", RADEON, "Linux", r'CMAKE_ARGS="-DGGML_HIP=on" pip install .*llama-cpp-python'),
        ("llama_cpp", M4_MAX, "Darwin", r'CMAKE_ARGS="-DGGML_METAL=on" pip install .*llama-cpp-python'),
    ],
)
def test_a_gpu_that_an_engine_cannot_use_stops_the_run_with_the_install_line(
    engines: Describe, monkeypatch: pytest.MonkeyPatch, backend: str, gpu: Gpu, system: str, line: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    engines(**{backend: CPU_BUILD})
    name = backend.replace("llama_cpp", "llama.cpp")
    with pytest.raises(UserError, match=line) as stop:
        choose(Options(backends=name), _machine(gpu))
    assert gpu.name in str(stop.value)
    assert "--device cpu" in str(stop.value)


@pytest.mark.parametrize("meant", [{"device": "cpu"}, {"n_gpu_layers": 0}])
def test_a_run_that_means_the_cpu_is_not_stopped(engines: Describe, meant: dict[str, object]) -> None:
    engines(llama_cpp=CPU_BUILD, torch=CPU_BUILD)
    chosen, notes = choose(Options(**meant), _machine(RTX_5090))
    assert chosen == {"torch": CPU_BUILD, "llama.cpp": CPU_BUILD}
    assert notes == []


def test_an_engine_that_uses_the_gpu_runs(engines: Describe) -> None:
    engines(torch=_build_for("cuda:0"), llama_cpp=_build_for("CUDA0"), mlx=_build_for("cuda"))
    for device in ("auto", "gpu"):
        chosen, notes = choose(Options(device=device), _machine(RTX_5090))
        assert list(chosen) == ["torch", "mlx", "llama.cpp"]
        assert notes == []


def test_an_engine_without_a_build_for_the_card_runs_on_the_cpu(engines: Describe) -> None:
    engines(mlx=CPU_BUILD)
    chosen, _ = choose(Options(backends="mlx"), _machine(RADEON))
    assert chosen == {"mlx": CPU_BUILD}


@pytest.mark.parametrize(
    ("system", "line"),
    [
        ("Linux", r'CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir llama-cpp-python'),
        ("Windows", r'\$env:CMAKE_ARGS = "-DGGML_CUDA=on"; pip install'),
        ("Darwin", r'CMAKE_ARGS="-DGGML_METAL=on" pip install'),
    ],
)
def test_layers_on_a_gpu_need_a_build_with_offload(
    engines: Describe, monkeypatch: pytest.MonkeyPatch, system: str, line: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    engines(llama_cpp=CPU_BUILD)
    with pytest.raises(UserError, match=r"-ngl 99.*" + line):
        choose(Options(n_gpu_layers=(0, 99)), _machine())


def test_mlx_on_a_cpu_runs_only_by_name(engines: Describe) -> None:
    engines(torch=CPU_BUILD, mlx=CPU_BUILD)
    chosen, notes = choose(Options(), _machine())
    assert list(chosen) == ["torch"]
    assert len(notes) == 1
    assert "mlx left out" in notes[0]
    assert "--backend mlx" in notes[0]

    chosen, notes = choose(Options(backends="mlx"), _machine())
    assert list(chosen) == ["mlx"]
    assert len(notes) == 1
    assert "slow" in notes[0]


def test_device_cpu_leaves_a_metal_mlx_out(engines: Describe) -> None:
    engines(torch=_build_for("mps"), mlx=_build_for("gpu"))
    chosen, notes = choose(Options(device="cpu"), _machine(M4_MAX))
    assert list(chosen) == ["torch"]
    assert "mlx left out" in notes[0]


def test_simulated_rows_are_called_so(engines: Describe) -> None:
    engines(simulated=CPU_BUILD)
    chosen, notes = choose(Options(backends="simulated"), _machine(RTX_5090))
    assert list(chosen) == ["simulated"]
    assert "measure no machine" in notes[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlx", r'mlx is not installed: pip install "tokenroof\[mlx\]"'),
        ("llama.cpp", r"llama\.cpp is installed but cannot be loaded: libcudart\.so\.13 is missing"),
        ("lama.cpp", r"no such engine, did you mean llama\.cpp\?"),
        ("tensorrt", r"no such engine \(there are torch, mlx, llama\.cpp\)"),
    ],
)
def test_a_named_engine_must_work(engines: Describe, name: str, message: str) -> None:
    engines(torch=CPU_BUILD, llama_cpp="libcudart.so.13 is missing")
    with pytest.raises(UserError, match=message):
        choose(Options(backends=("torch", name)), _machine())


def test_a_broken_engine_is_left_out_unless_named(engines: Describe) -> None:
    engines(torch=CPU_BUILD, llama_cpp="libcudart.so.13 is missing")
    chosen, notes = choose(Options(), _machine())
    assert list(chosen) == ["torch"]
    assert notes == ["llama.cpp left out, it cannot be loaded: libcudart.so.13 is missing"]


def test_an_engine_that_does_not_know_the_device_is_left_out_unless_named(engines: Describe) -> None:
    engines(torch=_build_for("cuda:0", "cuda:1"), llama_cpp=_build_for("CUDA0", "CUDA1"))
    machine = _machine(RTX_5090, RTX_5090)
    chosen, notes = choose(Options(device="cuda:1"), machine)
    assert list(chosen) == ["torch"]
    assert notes == ["llama.cpp left out: it knows no --device cuda:1"]
    with pytest.raises(UserError, match=r"--device cuda:1: llama\.cpp knows cpu, gpu, CUDA0, CUDA1"):
        choose(Options(device="cuda:1", backends="llama.cpp"), machine)
    with pytest.raises(UserError, match=r"no engine can run.*torch left out: it knows no --device cuda:7"):
        choose(Options(device="cuda:7"), machine)


@pytest.mark.parametrize("device", ["gpu", "cuda:0"])
def test_a_device_that_is_not_there_is_told(engines: Describe, device: str) -> None:
    engines(torch=CPU_BUILD)
    with pytest.raises(UserError, match=rf"--device {device}: the installed torch sees no accelerator"):
        choose(Options(device=device), _machine())


def test_no_engine_at_all_is_told(engines: Describe) -> None:
    engines()
    with pytest.raises(UserError, match=r'no engine can run: pip install "tokenroof\[all\]"'):
        choose(Options(), _machine())


@pytest.mark.parametrize("backends", [None, ("llama.cpp",)])
def test_a_tier_that_cannot_be_used_stops_the_run(engines: Describe, backends: tuple[str, ...] | None) -> None:
    engines(torch=CPU_BUILD, llama_cpp="no tier answers at 127.0.0.1:50052")
    rpc = ("127.0.0.1:50052",)
    with pytest.raises(UserError, match=r"--rpc 127\.0\.0\.1:50052: no tier answers at 127\.0\.0\.1:50052"):
        choose(Options(backends=backends, rpc=rpc), _machine())


def test_a_tier_is_a_device(engines: Describe) -> None:
    lent = _build_for("RPC0")
    engines(llama_cpp=lent)
    for device in ("auto", "gpu", "RPC0"):
        chosen, _ = choose(Options(backends="llama.cpp", rpc="127.0.0.1:50052", device=device), _machine(RTX_5090))
        assert chosen == {"llama.cpp": lent}
    with pytest.raises(UserError, match=r"llama\.cpp knows cpu, gpu, RPC0"):
        choose(Options(backends="llama.cpp", rpc="127.0.0.1:50052", device="RPC1"), _machine())
