"""What an engine was asked for, `asked` in `engine_settings`, as the flags of the command line say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Flag, key in `asked`, and the value that a run without the flag asks for.
_FLAGS = (
    ("-w", "weights", "bf16"),
    ("-ngl", "n_gpu_layers", -1),
    ("-t", "n_threads", ""),
    ("-fa", "flash_attn", "auto"),
    ("-ctk", "kv_k_format", "auto"),
    ("-ctv", "kv_v_format", "auto"),
    ("-b", "n_batch", 2048),
    ("-ub", "n_ubatch", 512),
    ("--device", "device", "auto"),
    ("-ncmoe", "n_cpu_moe", 0),
    ("-nkvo", "kv_offload", True),
    ("-sm", "split_mode", "layer"),
    ("-ts", "tensor_split", ""),
    ("--rpc", "rpc", ""),
    ("--cache-kind", "cache_kind", "auto"),
    ("--allow-partial", "allow_partial", False),
    ("--artifact", "served", ""),
    ("--rate", "request_rate", ""),
    ("--on", "on", ""),
)
# What an engine without the setting is asked for.
_WITHOUT = {"n_batch": 0, "n_ubatch": 0}
_TURNED_ROUND = "-nkvo"  # says what is not wanted


def flags_of(asked: Mapping[str, Any]) -> dict[str, str]:
    """The value of each flag, as text, since a file may hold anything; what was not asked has the default's."""
    return {flag: _flag(flag, asked.get(key), default, _WITHOUT.get(key)) for flag, key, default in _FLAGS}


def _flag(flag: str, value: object, default: object, without: object) -> str:
    chosen = default if value is None or value == without else value
    if flag == _TURNED_ROUND:
        return str(int(not chosen))
    if isinstance(chosen, list):
        numbers = all(isinstance(each, int | float) for each in chosen)
        return "/".join(f"{each:g}" for each in chosen) if numbers else ",".join(map(str, chosen))
    return str(chosen)


DEFAULTS = flags_of({})
"""The value of each flag where it is left out."""
