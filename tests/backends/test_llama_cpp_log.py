"""What is read from llama.cpp's log. Lines of GPUs are written after its sources: none was at hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backends.llama_cpp import engine_log

TWO_GPUS = """\
load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
load_tensors: layer   0 assigned to device CPU, is_swa = 0
load_tensors: layer   1 assigned to device CUDA0, is_swa = 0
load_tensors: layer   2 assigned to device CUDA1, is_swa = 0
load_tensors: offloading output layer to GPU
load_tensors: offloaded 2/3 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   100.25 MiB
load_tensors:        CUDA0 model buffer size =    50.50 MiB
load_tensors:       CUDA10 model buffer size =     7.00 MiB
llama_context:  CUDA_Host  output buffer size =     0.49 MiB
llama_kv_cache:      CUDA0 KV buffer size =     1.00 MiB
llama_kv_cache:      CUDA0 KV buffer size =     2.00 MiB
resolve_fused_ops: Flash Attention not supported, set to disabled
sched_reserve:      CUDA0 compute buffer size =     4.00 MiB
~llama_context:      CUDA0 compute buffer size is   4.0000 MiB, matches expectation of   4.0000 MiB
"""
MIB = 2**20


def test_buffers_are_counted_by_name_and_use():
    assert engine_log.buffer_bytes(TWO_GPUS) == {
        "CPU_Mapped": {"model": 105_119_744},
        "CUDA0": {"model": 50 * MIB + MIB // 2, "kv": 3 * MIB, "compute": 4 * MIB},
        "CUDA10": {"model": 7 * MIB},
        "CUDA_Host": {"output": round(0.49 * MIB)},
    }


def test_a_recurrent_state_counts_as_kv_cache():
    text = "llama_memory_recurrent:        CPU RS buffer size =     1.50 MiB\n"
    assert engine_log.buffer_bytes(text) == {"CPU": {"kv": 3 * MIB // 2}}


def test_a_device_has_its_own_buffers_and_no_other():
    buffers = engine_log.buffer_bytes(TWO_GPUS)
    assert engine_log.on_device(buffers, "CUDA0") == buffers["CUDA0"]
    assert engine_log.on_device(buffers, "CUDA1") == {}
    metal = {"MTL0_Mapped": {"model": 5}, "MTL0": {"kv": 2}, "MTL0_Private": {"kv": 1}, "CPU": {"model": 9}}
    assert engine_log.on_device(metal, "MTL0") == {"model": 5, "kv": 3}


def test_each_layer_has_its_device_the_output_layer_last():
    assert engine_log.layer_devices(TWO_GPUS) == ["CPU", "CUDA0", "CUDA1"]


@given(st.lists(st.sampled_from(["CPU", "CUDA0", "MTL0"]), min_size=1, max_size=130))
def test_layers_stay_in_order_past_ten_and_a_hundred(devices):
    lines = [f"load_tensors: layer {i:3d} assigned to device {name}, is_swa = 0" for i, name in enumerate(devices)]
    assert engine_log.layer_devices("\n".join(lines)) == devices


@given(st.integers(min_value=1, max_value=10**7))
def test_a_buffer_of_hundredths_of_mebibytes_comes_back(hundredths):
    text = f"load_tensors:          CPU model buffer size = {hundredths / 100:8.2f} MiB\n"
    size = engine_log.buffer_bytes(text)["CPU"]["model"]
    assert abs(size - hundredths * MIB / 100) <= 0.5


def test_flash_attention_is_what_auto_became():
    assert engine_log.flash_attention(TWO_GPUS) == "off"
    assert engine_log.flash_attention("llama_context: flash_attn            = enabled\n") == "on"
    resolved = "llama_context: flash_attn            = auto\nresolve_fused_ops: Flash Attention enabled\n"
    assert engine_log.flash_attention(resolved) == "on"
    assert engine_log.flash_attention("llama_context: flash_attn            = auto\n") is None


def test_load_mode():
    assert engine_log.load_mode(TWO_GPUS) == "mmap"
    assert engine_log.load_mode("") is None
