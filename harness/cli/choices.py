"""The words that flags accept."""

from typing import Literal

Format = Literal["table", "md", "json", "csv"]
FLASH_ATTENTION = ("auto", "on", "off")
SPLIT_MODES = ("layer", "none", "row")
KV_FORMATS = (
    *("auto", "f32", "f16", "bf16"),
    *("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"),  # llama.cpp
    *("8bit", "4bit"),  # MLX
    *("fp8", "quanto", "hqq"),  # torch, as far as the installed transformers and these packages go
)
KV_CACHES = ("on", "off", "prefix")
