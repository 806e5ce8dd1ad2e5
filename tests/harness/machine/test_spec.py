"""The vendor's bandwidth for a device of a machine: which figure, and from where."""

import pytest

from harness.machine.hardware import Gpu, Machine
from harness.machine.spec import catalog_device, spec_bandwidth

GIB = 2**30


def _machine(*gpus: Gpu, cpu: str = "AMD EPYC 9654 96-Core Processor", ram_gib: int = 64, **more: str) -> Machine:
    return Machine("Linux 6 x86_64", cpu, 8, ram_gib * GIB, gpus, **more)


def _nvml(name: str, mib: int | None, bus: int, mhz: int) -> Gpu:
    source = f"NVML {bus} bit × {mhz} MHz × 2"
    return Gpu("nvidia", name, mib and mib * 2**20, None, bus * mhz * 2_000_000 // 8, source)


RTX_4090 = _nvml("NVIDIA GeForce RTX 4090", 24564, 384, 10501)
H200 = _nvml("NVIDIA H200", 143771, 6144, 3201)
M4_MAX = Gpu("apple", "Apple M4 Max", None, cores=40)
SPARK = Gpu("nvidia", "NVIDIA GB10", None)


@pytest.mark.parametrize(
    ("machine", "name", "gbs", "source"),
    [
        (_machine(RTX_4090), "NVIDIA GeForce RTX 4090", 1008, "catalog rtx-4090"),
        (_machine(H200), "NVIDIA H200", 4916.736, "NVML 6144 bit × 3201 MHz × 2"),  # NVIDIA prints 4800
        (_machine(_nvml("NVIDIA H800", 81559, 5120, 2619)), "NVIDIA H800", 3352.32, "NVML 5120 bit × 2619 MHz × 2"),
        # A figure 50 % above the vendor's is not believed.
        (_machine(_nvml("NVIDIA L4", 23034, 192, 9400)), "NVIDIA L4", 300, "catalog l4"),
        (_machine(SPARK, cpu="Cortex-X925"), "NVIDIA GB10", 273.056, "catalog dgx-spark-gb10"),
        (_machine(SPARK, cpu="Cortex-X925"), None, 273.056, "catalog dgx-spark-gb10"),
        (_machine(M4_MAX, cpu="Apple M4 Max"), "Apple M4 Max", 546.112, "catalog apple-m4-max-40"),
        (_machine(M4_MAX, cpu="Apple M4 Max"), None, 546.112, "catalog apple-m4-max-40"),
        (_machine(cpu="AMD RYZEN AI MAX+ 395 w/ Radeon 8060S"), None, 256, "catalog strix-halo-395"),
        (_machine(cpu="Cortex-A76", board="Raspberry Pi 5 Model B Rev 1.0"), None, 17.1, "catalog raspberry-pi-5"),
        (
            _machine(Gpu("nvidia", "Orin (nvgpu)", None), board="NVIDIA Jetson AGX Orin Developer Kit"),
            "Orin",
            204.8,
            "catalog jetson-agx-orin-64gb",
        ),
        (
            _machine(
                Gpu("nvidia", "Orin (nvgpu)", None), board="NVIDIA Jetson Orin Nano Developer Kit", power_mode="15W"
            ),
            "Orin",
            68.256,
            "catalog jetson-orin-nano",
        ),
        # torch under ROCm may know no more than this; the kernel's name says which.
        (_machine(Gpu("amd", "AMD Radeon RX 7900 XTX", 24 * GIB)), "AMD Radeon Graphics", 960, "catalog rx-7900-xtx"),
    ],
)
def test_the_figure_and_its_source(machine: Machine, name: str | None, gbs: float, source: str) -> None:
    bandwidth, where = spec_bandwidth(machine, name)
    assert bandwidth == pytest.approx(gbs * 1e9, rel=1e-4)
    assert where == source


def test_what_is_unknown_is_none_with_a_reason() -> None:
    bandwidth, why = spec_bandwidth(_machine(RTX_4090))
    assert bandwidth is None
    assert why.startswith("no vendor figure for this CPU's memory")
    assert spec_bandwidth(_machine(), "NVIDIA H800")[0] is None
    assert "NVIDIA H800 is not in the catalog" in spec_bandwidth(_machine(), "NVIDIA H800")[1]


def test_two_cards_of_one_name_are_told_apart_by_memory() -> None:
    name = "NVIDIA GeForce RTX 3080"
    assert spec_bandwidth(_machine(), name, 12288 * 2**20) == (912_000_000_000, "catalog rtx-3080-12gb")
    assert spec_bandwidth(_machine(Gpu("nvidia", name, 10240 * 2**20)), name)[1] == "catalog rtx-3080"
    bandwidth, why = spec_bandwidth(_machine(), name)
    assert bandwidth is None
    assert "give the memory size" in why


def test_metals_working_set_is_not_a_macs_size() -> None:
    machine = _machine(Gpu("apple", "Apple M4 Max", None), cpu="Apple M4 Max", ram_gib=36)  # ioreg told no cores
    device = catalog_device(machine, "Apple M4 Max", 30_150_672_384)
    assert device is not None
    assert device.id == "apple-m4-max-32"


def test_a_card_is_not_the_cpus_memory() -> None:
    assert catalog_device(_machine(RTX_4090)) is None
