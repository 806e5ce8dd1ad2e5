"""Real architectures by name: the Hugging Face configurations of published models, without weights.

They lie in `presets.json`, family by family: the keys that its models share, and then each model's own. Sources: each
model's own `config.json`; "gpt2-mini" is the teaching model of articles on inference, small enough to see every part,
real GPT-2 in kind. The flat keys `rope_theta` and `rope_scaling` are what mlx-lm reads and what transformers 5 still
accepts; `tie_word_embeddings` is always stated, for the libraries' defaults differ.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

Config = dict[str, Any]


def _presets() -> dict[str, Config]:
    text = resources.files("harness.models").joinpath("presets.json").read_text(encoding="utf-8")
    return {
        name: family["shared"] | own for family in json.loads(text).values() for name, own in family["models"].items()
    }


PRESETS: dict[str, Config] = _presets()
"""In the order in which they are listed."""
