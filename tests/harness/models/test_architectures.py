"""Which engine computes which architecture in which weight format: each is run here, and held against transformers.

`python tests/harness/models/test_architectures.py` prints the table of README.md.
"""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from backends.base import LoadRequest
from backends.llama_cpp import quantise as llama_cpp_quantise
from backends.mlx import quantise as mlx_quantise
from backends.registry import BACKENDS
from harness.models.gguf_export import export
from results.schema import NAMES
from results.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import Session

    Probed = Callable[[str, Session], dict[str, Any]]

PLAIN = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
FORMATS = {
    "torch": tuple(PLAIN),
    "mlx": (*PLAIN, "8bit", "4bit"),
    "llama.cpp": (*PLAIN, "q8_0", "q4_k_m"),
}
QUANTISERS = {"mlx": mlx_quantise.quantise, "llama.cpp": llama_cpp_quantise.quantise}
N_TOKENS, N_FIRST, WINDOW = 64, 40, 24

# Of relative L2 to transformers in float32, from weights rounded to the plain formats: two to three times the largest
# seen (f32 through flash attention 9e-4, f16 3e-3, bf16 0.019, eight bits 0.037, four bits 0.41). A mixture of experts
# is discontinuous (a rounding flips a choice).
LIMITS = {"f32": 3e-3, "f16": 0.01, "bf16": 0.06, "8bit": 0.1, "q8_0": 0.1, "4bit": 0.8, "q4_k_m": 0.8}
EXPERTS, EXPERTS_LIMIT = ("MixtralForCausalLM", "Qwen3MoeForCausalLM"), 0.25

SHAPE: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
GEMMA = SHAPE | {"head_dim": 64, "tie_word_embeddings": True}


@dataclass(frozen=True)
class Architecture:
    """What is run, for a row of the table.

    Attributes:
        config: transformers' own, with what is special about it small enough to show in a short text.
        specials: keys of it that must show, with values that would turn them off.
        mlx: formats that are run through MLX.
        mlx_tokens: of the text that MLX is given.
        mlx_note: what the table says of that.
    """

    config: transformers.PretrainedConfig
    specials: dict[str, Any]
    mlx: tuple[str, ...] = FORMATS["mlx"]
    mlx_tokens: int = N_TOKENS
    mlx_note: str = ""

    def formats(self, engine: str) -> tuple[str, ...]:
        """Of the weights, in this engine."""
        return self.mlx if engine == "mlx" else FORMATS[engine]


ON_A_GPU = "MLX computes experts on a CPU in f32 alone; other formats need a GPU, where they were not tried"
ARCHITECTURES = {
    "GPT2LMHeadModel": Architecture(
        transformers.GPT2Config(
            vocab_size=320,
            n_embd=256,
            n_layer=2,
            n_head=4,
            n_positions=256,
            bos_token_id=0,
            eos_token_id=0,
        ),
        {},
    ),
    "LlamaForCausalLM": Architecture(transformers.LlamaConfig(**SHAPE), {}),
    "MistralForCausalLM": Architecture(transformers.MistralConfig(**SHAPE, sliding_window=None), {}),
    "MixtralForCausalLM": Architecture(
        transformers.MixtralConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2), {}, ("f32",), mlx_note=ON_A_GPU
    ),
    "Qwen2ForCausalLM": Architecture(transformers.Qwen2Config(**SHAPE), {}),
    "Qwen3ForCausalLM": Architecture(transformers.Qwen3Config(**SHAPE, head_dim=64), {}),
    "Qwen3MoeForCausalLM": Architecture(
        transformers.Qwen3MoeConfig(
            **SHAPE, head_dim=64, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256, norm_topk_prob=True
        ),
        {},
        ("f32",),
        mlx_note=ON_A_GPU,
    ),
    "GemmaForCausalLM": Architecture(transformers.GemmaConfig(**GEMMA), {}),
    "Gemma2ForCausalLM": Architecture(
        transformers.Gemma2Config(
            **GEMMA,
            sliding_window=WINDOW,
            query_pre_attn_scalar=64,
            attn_logit_softcapping=1.0,
            final_logit_softcapping=2.0,
        ),
        {"sliding_window": 256, "attn_logit_softcapping": None, "final_logit_softcapping": None},
        mlx_tokens=WINDOW,
        mlx_note="Within the sliding window alone: mlx-lm's code of it has none",
    ),
    "Gemma3ForCausalLM": Architecture(
        transformers.Gemma3TextConfig(
            **(GEMMA | {"num_hidden_layers": 4}),
            sliding_window=WINDOW,
            sliding_window_pattern=2,
            query_pre_attn_scalar=64,
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        ),
        {"sliding_window": 256, "layer_types": ["sliding_attention"] * 4},
    ),
    "PhiForCausalLM": Architecture(
        transformers.PhiConfig(**SHAPE, partial_rotary_factor=0.5), {"partial_rotary_factor": 1.0}
    ),
    "Phi3ForCausalLM": Architecture(
        transformers.Phi3Config(**SHAPE, partial_rotary_factor=0.75), {"partial_rotary_factor": 1.0}
    ),
    "SmolLM3ForCausalLM": Architecture(
        transformers.SmolLM3Config(**(SHAPE | {"num_hidden_layers": 4})), {"no_rope_layers": [1, 1, 1, 1]}
    ),
    "Olmo2ForCausalLM": Architecture(transformers.Olmo2Config(**SHAPE), {}),
    "GraniteForCausalLM": Architecture(
        transformers.GraniteConfig(
            **SHAPE, attention_multiplier=0.2, embedding_multiplier=2.0, residual_multiplier=0.5, logits_scaling=3.0
        ),
        {
            "attention_multiplier": 0.125,
            "embedding_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
    ),
}


def table() -> str:
    """Markdown: what each engine was seen to compute as transformers does; a row for all that are alike in it."""
    notes = list(dict.fromkeys(each.mlx_note for each in ARCHITECTURES.values() if each.mlx_note))
    rows: dict[str, list[str]] = {}
    for name, architecture in ARCHITECTURES.items():
        cells = [", ".join(architecture.formats(engine)) for engine in FORMATS]
        if architecture.mlx_note:
            cells[1] += f" ({notes.index(architecture.mlx_note) + 1})"
        rows.setdefault(" | ".join(cells), []).append(f"`{name}`")
    lines = ["| architecture | torch | MLX | llama.cpp |", "|---|---|---|---|"]
    lines += [f"| {', '.join(names)} | {cells} |" for cells, names in rows.items()]
    return "\n".join(lines) + "\n\n" + "\n".join(f"({n}) {note}." for n, note in enumerate(notes, start=1)) + "\n"


def build(config: transformers.PretrainedConfig) -> torch.nn.Module:
    """In float32, with weights so large that a mistake in any of them shows."""
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(1)
    is_gemma = "gemma" in config.model_type
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 1:
                centre = 0 if is_gemma or name.endswith("bias") else 1
                weight.copy_(centre + 0.3 * noise)
            elif "embed" in name or "wte" in name or "wpe" in name:
                weight.copy_(noise / (config.hidden_size**0.5 if is_gemma else 1))
            else:
                weight.copy_(noise * 1.2 / 256**0.5)
    return model


class Models:
    """Each architecture's model, its directory, and its logits in float32 from weights rounded to a format."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ids = torch.from_numpy(np.random.default_rng(0).integers(0, 320, (1, N_TOKENS)))
        self._made: dict[str, torch.nn.Module] = {}

    def model(self, name: str) -> torch.nn.Module:
        if name not in self._made:
            self._made[name] = build(ARCHITECTURES[name].config)
            self._made[name].save_pretrained(self.root / name)
            if name.startswith("GPT2"):
                without_prefix(self.root / name / "model.safetensors")
        return self._made[name]

    def logits(self, name: str, weight_format: str = "f32") -> np.ndarray:
        dtype = PLAIN.get(weight_format, torch.float32)
        return forward(copy.deepcopy(self.model(name)).to(dtype).float(), self.ids)

    def artifact(self, name: str, engine: str, weight_format: str) -> Path:
        """What this engine loads."""
        self.model(name)
        quantised = weight_format not in PLAIN
        path = self.root / name
        if engine == "llama.cpp":
            path = self.root / f"{name}-{'f32' if quantised else weight_format}.gguf"
            if not path.exists():
                export(self.root / name, path, "f32" if quantised else weight_format)
        if not quantised:
            return path
        target = self.root / f"{name}-{weight_format}{path.suffix}"
        QUANTISERS[engine](path, target, weight_format, 1)
        return target

    def session(self, name: str, engine: str, weight_format: str) -> Session:
        artifact = self.artifact(name, engine, weight_format)
        kv_format = "f32" if engine == "llama.cpp" else "auto"
        # Repacked for AMX, quantised weights end the process on virtual machines that promise AMX and have it not.
        options = {"use_extra_bufts": False} if engine == "llama.cpp" else {}
        request = LoadRequest(
            artifact,
            weight_format,
            device="cpu",
            kv_k_format=kv_format,
            kv_v_format=kv_format,
            engine_options=options,
        )
        return BACKENDS[engine].import_module().load(request)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    torch.set_num_threads(1)
    return Models(tmp_path_factory.mktemp("architectures"))


def without_prefix(path: Path) -> None:
    """The names of the published GPT-2, which all engines read; mlx-lm does not read those that transformers saves."""
    save_file({name.removeprefix("transformer."): weight for name, weight in load_file(path).items()}, path)


def forward(model: torch.nn.Module, ids: torch.Tensor) -> np.ndarray:
    with torch.inference_mode():
        return model(ids).logits[0].numpy()


def relative_l2(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_engines_compute_what_transformers_computes(models: Models, name: str, probed: Probed) -> None:
    architecture = ARCHITECTURES[name]
    ids = models.ids.numpy().astype(np.int32)
    errors, probes = {}, []
    for engine in FORMATS:
        formats = architecture.formats(engine)
        n_tokens = architecture.mlx_tokens if engine == "mlx" else N_TOKENS
        # The second piece attends to what the first left in the KV cache.
        pieces = [ids[:, : min(n_tokens, N_FIRST)], ids[:, N_FIRST:n_tokens]]
        for weight_format in formats:
            with closing(models.session(name, engine, weight_format)) as session:
                assert session.facts().weight_format == weight_format
                session.allocate(N_TOKENS, 1)
                logits = np.concatenate([session.logits(piece)[0] for piece in pieces if piece.size])
                if n_tokens == N_TOKENS and weight_format == ("bf16" if "bf16" in formats else "f32"):
                    probes.append(probed(engine, session))
            errors[engine, weight_format] = relative_l2(logits, models.logits(name, weight_format)[:n_tokens])
    wide = EXPERTS_LIMIT if name in EXPERTS else 0
    limits = {each: max(LIMITS[each], wide if each != "f32" else 0) for each in LIMITS}
    assert all(error < limits[weight_format] for (_, weight_format), error in errors.items()), errors
    found = verify(pd.DataFrame(probes, columns=list(NAMES)))
    assert len(found) > 1
    assert set(found["verified"]) == {"yes"}, found[["backend", "verified_why"]].to_string()


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name, each in ARCHITECTURES.items() for key in each.specials]
)
def test_what_is_special_shows_in_the_answers(models: Models, name: str, key: str) -> None:
    """Else an engine without it would pass too."""
    config = copy.deepcopy(ARCHITECTURES[name].config)
    without = ARCHITECTURES[name].specials[key]
    if key == "partial_rotary_factor":
        config.rope_parameters |= {key: without}
    else:
        setattr(config, key, without)
    other = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    other.load_state_dict(models.model(name).state_dict())
    assert relative_l2(forward(other, models.ids), models.logits(name)) > 0.05


def test_the_table_is_the_one_that_people_read() -> None:
    page = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert table() in page, "run this file and put what it prints into README.md"


if __name__ == "__main__":
    print(table(), end="")
