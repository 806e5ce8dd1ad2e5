"""What was asked, as flags: the values that a run has without them are those of `Options`."""

from harness.machine.hardware import physical_cores
from harness.options import Options
from results.asked import DEFAULTS, flags_of

ASKED = {
    "-ngl": ("n_gpu_layers", 16, "16"), "-t": ("n_threads", 4, "4"), "-fa": ("flash_attn", "on", "on"),
    "-ctk": ("kv_k_format", "q8_0", "q8_0"), "-ctv": ("kv_v_format", "q4_0", "q4_0"), "-b": ("n_batch", 64, "64"),
    "-ub": ("n_ubatch", 32, "32"), "-ncmoe": ("n_cpu_moe", 3, "3"), "-nkvo": ("kv_offload", False, "1"),
    "-sm": ("split_mode", "row", "row"), "-ts": ("tensor_split", [3.0, 1.5], "3/1.5"),
    "--cache-kind": ("cache_kind", "static", "static"), "--rpc": ("rpc", ["a:1", "b:2"], "a:1,b:2"),
}  # fmt: skip


def test_each_setting_is_its_flag() -> None:
    for flag, (key, value, text) in ASKED.items():
        assert {name: said for name, said in flags_of({key: value}).items() if said != DEFAULTS[name]} == {flag: text}


def test_what_a_run_asks_for_without_flags_is_the_default() -> None:
    usual = {"n_threads": physical_cores(), "rpc": [], "tensor_split": []}
    for key, _, _ in ASKED.values():
        value = usual[key] if key in usual else getattr(Options(), key)[0]
        told = {name: said for name, said in flags_of({key: value}).items() if said != DEFAULTS[name]}
        assert told == ({"-t": str(value)} if key == "n_threads" else {})


def test_a_setting_that_an_engine_lacks_is_none() -> None:
    assert flags_of({"n_batch": 0, "n_ubatch": 0, "weights": None}) == DEFAULTS
