from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_SHAPE = {
    "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 2, "hidden_size": 128,
    "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
    "max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama that has learned, in a few seconds, to count: token n + 1 follows token n."""
    import torch  # noqa: PLC0415  # heavy, and half of the tests here need none of it
    import transformers  # noqa: PLC0415

    from harness.models.presets import PRESETS  # noqa: PLC0415
    from harness.models.synthesis import SYNTHETIC_KEY, synthesise  # noqa: PLC0415

    directory = tmp_path_factory.mktemp("trained") / "counter"
    synthesise(
        {key: value for key, value in PRESETS["llama-3.2-1b"].items() if key != "rope_scaling"} | _SHAPE, directory
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(30):
        text = (torch.randint(0, 512, (8, 1)) + torch.arange(33)) % 512
        loss = model(text, labels=text).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.to(torch.bfloat16).save_pretrained(directory)
    (directory / "model.safetensors.index.json").unlink(missing_ok=True)  # of the shard that was there before
    config = json.loads((directory / "config.json").read_text())
    config.pop(SYNTHETIC_KEY, None)
    (directory / "config.json").write_text(json.dumps(config))
    return directory
