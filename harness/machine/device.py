"""One device of the catalog, and what follows from its row: bandwidth, matrix rate, usable memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gpu", "soc", "cpu", "memory"]

# A card's memory is what its driver reports, less the driver's own part and the process's context: an RTX 5090 of
# 32607 MiB shows 32109 MiB to CUDA, and a context with cuBLAS takes some 400 MiB more.
_DRIVER_SHARE_BYTES = 2**30

# Of unified memory: GPU and system live in it together. A DGX Spark sold with 128 GB shows 119.7 GiB to CUDA.
_SYSTEM_SHARE = 0.10
_LEAST_SYSTEM_BYTES = 2 * 2**30
_AMD_UNIFIED_SHARE = 0.75  # AMD's Variable Graphics Memory: up to 96 GB of 128

# macOS 26's share for the GPU, by memory size in GiB.
_METAL_SHARES = ((24, 0.74), (48, 0.78), (96, 0.81), (192, 0.84), (256, 0.87))
_LARGEST_METAL_SHARE = 0.90625  # 464 GiB of 512


@dataclass(frozen=True)
class Device:
    """One row of `devices.csv`: the columns in their order, None or an empty tuple where a cell is empty.

    Rates are the vendor's dense ones in 10^12 a second: FP16 with FP32 accumulation, without sparsity.
    """

    id: str
    name: str
    vendor: str
    kind: Kind  # "memory": a kind of system memory, such as two channels of DDR5-6000
    memory_type: str
    memory_gb: float | None  # as sold, which is GiB in truth; of a Mac the largest configuration
    memory_bus_bits: int | None
    memory_rate_gtps: float | None  # 10^9 transfers a second and data line
    bandwidth_gbs: float | None  # as the vendor prints it
    unified: bool  # CPU and GPU share this memory
    host_link: str | None
    host_link_gbs: float | None  # one direction
    fp16_dense_tflops: float | None
    bf16_dense_tflops: float | None
    fp8_dense_tflops: float | None
    int8_dense_tops: float | None
    fp4_dense_tflops: float | None
    release_year: int | None
    memory_options_gb: tuple[int, ...]  # sizes sold, where the size tells devices of one name apart
    gpu_cores: int | None  # where their number tells devices of one name apart
    power_modes: tuple[str, ...]  # of `nvpmodel`, where the mode decides the memory's clock
    driver_memory_mib: int | None  # total memory as the driver reports it (nvidia-smi), where it was seen
    match_regex: str | None  # finds the name that the driver gives; None: that name is not known
    source: str
    notes: str

    @property
    def bus_bandwidth_bytes_s(self) -> int | None:
        """Bus width × transfer rate in bytes a second; None where either is not known."""
        if self.memory_bus_bits is None or self.memory_rate_gtps is None:
            return None
        return round(self.memory_bus_bits / 8 * self.memory_rate_gtps * 1e9)

    @property
    def bandwidth_bytes_s(self) -> int | None:
        """Peak memory bandwidth in bytes a second: the vendor's figure or bus × rate, whichever is larger.

        Vendors round (Apple prints 800 for 819.2), and a ceiling must not be lower than the hardware's. The catalog
        holds no row where the two differ by more than 5 %. None where the vendor's figure was not found.
        """
        if self.bandwidth_gbs is None:
            return None
        return max(round(self.bandwidth_gbs * 1e9), self.bus_bandwidth_bytes_s or 0)

    @property
    def bandwidth_source(self) -> str:
        """In words, where `bandwidth_bytes_s` comes from."""
        if self.bandwidth_gbs is None:
            return "the vendor's figure was not found"
        printed = f"{self.bandwidth_gbs:g} GB/s"
        if (self.bus_bandwidth_bytes_s or 0) > round(self.bandwidth_gbs * 1e9):
            by_bus = f"{self.memory_bus_bits} bit × {self.memory_rate_gtps:g} GT/s"
            return f"{by_bus}, which {self.vendor} rounds to {printed}"
        return f"{self.vendor}'s figure"

    @property
    def memory_bytes(self) -> int | None:
        """Memory as sold, in bytes: a "32 GB" card and a "512 GB" Mac have as many GiB."""
        return None if self.memory_gb is None else round(self.memory_gb * 2**30)

    def flops_s(self, weight_format: str) -> float | None:
        """Peak matrix rate in operations a second for weights of a format.

        bf16 and f16 compute in themselves. Quantised weights compute in FP16 or, in llama.cpp's MMQ kernels, in INT8:
        the larger rate bounds both (an RTX 3080 was seen at 1.01 times its FP16 rate with Q4_K_M). FP8 and FP4 may
        compute in themselves as well. f32 has no entry.

        Args:
            weight_format: "bf16", "f16", "f32", or any quantised format's name.

        Returns:
            The rate, or None where the vendor's figure was not found.
        """
        if weight_format == "f32":
            return None
        if weight_format in {"bf16", "f16"}:
            rates = [self.bf16_dense_tflops if weight_format == "bf16" else self.fp16_dense_tflops]
        else:
            rates = [self.fp16_dense_tflops, self.int8_dense_tops]
        if weight_format.startswith(("fp8", "mxfp4", "nvfp4")):
            rates.append(self.fp8_dense_tflops)
        if weight_format.startswith(("mxfp4", "nvfp4")):
            rates.append(self.fp4_dense_tflops)
        known = [rate for rate in rates if rate]
        return max(known) * 1e12 if known else None


def usable_bytes(device: Device) -> int | None:
    """Memory that a model can use: what can be taken, not what is sold.

    - A card: what its driver reports (an RTX 5090 32607 MiB; with ECC on GDDR6, as on an L4, 15/16 of the GiB sold),
      else the GiB sold, less 1 GiB for driver and context.
    - A Mac: Metal's recommended working set, `metal_working_set_bytes`.
    - Other unified memory: 90 %, at least 2 GiB less than all; AMD's 75 %, which its driver can give to the GPU.

    Returns:
        Bytes, or None for a kind of system memory, whose size is the owner's choice.
    """
    if device.memory_bytes is None:
        return None
    if device.vendor == "Apple":
        return metal_working_set_bytes(device.memory_bytes)
    if not device.unified and device.kind == "gpu":
        reported = device.driver_memory_mib
        return (device.memory_bytes if reported is None else reported * 2**20) - _DRIVER_SHARE_BYTES
    if device.vendor == "AMD":
        return int(device.memory_bytes * _AMD_UNIFIED_SHARE)
    return device.memory_bytes - max(int(device.memory_bytes * _SYSTEM_SHARE), _LEAST_SYSTEM_BYTES)


def metal_working_set_bytes(ram_bytes: int) -> int:
    """Metal's `recommendedMaxWorkingSetSize` of a Mac, as macOS 26 sets it when nobody has changed it.

    Apple documents no rule. Seen in llama.cpp's logs (MB of 10^6): 12713.12 of 16 GB, 19069.67 of 24, 26800.60 of 32,
    30150.67 of 36, 40200.90 of 48, 55662.79 of 64, 115448.73 of 128, 498216.21 of 512; 239 GB of 256 in
    github.com/raullenchai/Rapid-MLX/pull/183. 96 and 192 GB follow the steps between. Before, it was 2/3 up to 32 GB
    and 3/4 above. `sysctl iogpu.wired_limit_mb` raises it.
    """
    for size_gib, share in _METAL_SHARES:
        if ram_bytes <= size_gib * 2**30:
            return int(ram_bytes * share)
    return int(ram_bytes * _LARGEST_METAL_SHARE)
