"""The probe bites: right engines agree on every family, and each classic mistake turns a row red."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from backends.base import LoadRequest, Session
from backends.registry import BACKENDS
from harness import probe
from harness.models.gguf_export import export
from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from results.schema import NAMES
from results.verify import verify

Config = dict[str, Any]
Weights = dict[str, NDArray[Any]]
Right = Callable[[str, str], dict[str, Any]]
Probe = Callable[..., dict[str, Any]]

_SMALL = {
    "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 3, "hidden_size": 128,
    "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
}  # fmt: skip
_SMALL_GPT2 = {"vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "n_layer": 3, "n_embd": 128, "n_head": 2}
_SMALL_EXPERTS = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64}
FAMILIES: dict[str, Config] = {
    "gpt2": PRESETS["gpt2"] | _SMALL_GPT2,
    "llama-2": PRESETS["llama-2-7b"] | _SMALL,
    "llama-3.1": PRESETS["llama-3.1-8b"] | _SMALL,
    "llama-3.2-tied": PRESETS["llama-3.2-1b"] | _SMALL,
    "mistral": PRESETS["mistral-7b"] | _SMALL,
    "qwen3": PRESETS["qwen3-8b"] | _SMALL,
    "qwen3_moe": PRESETS["qwen3-30b-a3b"] | _SMALL | _SMALL_EXPERTS,
}


@pytest.fixture(scope="module", autouse=True)
def _far_out_however_busy_the_machine_is() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "FAR_BUDGET_S", math.inf)
        yield


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("families")
    for name, config in FAMILIES.items():
        synthesise(config, root / name)
    return {name: root / name for name in FAMILIES}


@pytest.fixture(scope="session")
def probe_of(probed: Callable[[str, Session], dict[str, Any]]) -> Probe:
    """Loads an artifact and has its probe scored."""

    def scored(backend: str, artifact: Path, weights: str = "bf16") -> dict[str, Any]:
        request = LoadRequest(artifact, weights, device="cpu", n_threads=1)
        with closing(BACKENDS[backend].import_module().load(request)) as session:
            return probed(backend, session)

    return scored


def _gguf(directory: Path, folder: Path) -> Path:
    export(directory, folder / "model.gguf", "bf16")
    return folder / "model.gguf"


@pytest.fixture(scope="module")
def right(models: dict[str, Path], probe_of: Probe, tmp_path_factory: pytest.TempPathFactory) -> Right:
    """What an engine says of a family's own weights: asked once for all tests."""

    @cache
    def asked(backend: str, family: str) -> dict[str, Any]:
        if backend == "llama.cpp":
            return probe_of(backend, _gguf(models[family], tmp_path_factory.mktemp("right")))
        # On the CPU MLX computes experts in float32 only; the looser of two formats' limits holds.
        return probe_of(backend, models[family], "f32" if backend == "mlx" and "moe" in family else "bf16")

    return asked


def _verify(*probes: dict[str, Any]) -> pd.DataFrame:
    return verify(pd.DataFrame(list(probes), columns=list(NAMES)))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_engine_is_green_on_every_family(family: str, right: Right) -> None:
    probes = [right(engine, family) for engine in ("torch", "mlx", "llama.cpp")]
    rows = _verify(*probes)
    assert rows["verified"].tolist() == ["yes"] * 3, rows[["backend", "verified_why"]].to_string()
    assert [len(with_.split(", ")) for with_ in rows["verified_with"]] == [2, 2, 2], "each agrees with both others"
    assert np.ptp([probe["probe_nll"] for probe in probes]) < 0.05
    places = 16 if family == "gpt2" else 32
    assert all(len(json.loads(str(logits))) == places for logits in rows["probe_logits"])


def _edited(directory: Path, folder: Path, edit: Callable[[Config, Weights], None]) -> Path:
    """A copy of a model directory with its configuration and weights edited."""
    copy = shutil.copytree(directory, folder / "edited")
    config = json.loads((copy / "config.json").read_text())
    weights: Weights = {}
    for file in sorted(copy.glob("*.safetensors")):
        weights |= load_file(file)
        file.unlink()
    (copy / "model.safetensors.index.json").unlink(missing_ok=True)
    edit(config, weights)
    (copy / "config.json").write_text(json.dumps(config))
    save_file({name: np.ascontiguousarray(weight) for name, weight in weights.items()}, copy / "model.safetensors")
    return copy


def _wrong_rope(config: Config, _: Weights) -> None:
    config["rope_scaling"] = None


def _unpermuted(config: Config, weights: Weights) -> None:
    """Rows of q and k in the order of the original Llama files, where rotary pairs lie side by side."""
    for name in weights:
        if "q_proj" in name or "k_proj" in name:
            rows, width = weights[name].shape
            halves = weights[name].reshape(rows // config["head_dim"], 2, config["head_dim"] // 2, width)
            weights[name] = halves.swapaxes(1, 2).reshape(rows, width)


def _missing_bias(_: Config, weights: Weights) -> None:
    for name in weights:
        if name.endswith("attn.c_attn.bias"):
            weights[name] = np.zeros_like(weights[name])


def _transposed(_: Config, weights: Weights) -> None:
    name = next(name for name in weights if name.endswith("layers.1.self_attn.o_proj.weight"))
    weights[name] = weights[name].T


def _skipped_layer(_: Config, weights: Weights) -> None:
    for name in weights:
        if "layers.2." in name and ("o_proj" in name or "down_proj" in name):
            weights[name] = np.zeros_like(weights[name])


@pytest.mark.parametrize(
    ("family", "mistake"),
    [
        ("llama-3.1", _wrong_rope),
        ("llama-3.1", _unpermuted),
        ("gpt2", _missing_bias),
        ("qwen3", _transposed),
        ("llama-2", _skipped_layer),
        ("qwen3_moe", _skipped_layer),
    ],
)
def test_a_mistake_is_red(
    family: str,
    mistake: Callable[[Config, Weights], None],
    models: dict[str, Path],
    right: Right,
    probe_of: Probe,
    tmp_path: Path,
) -> None:
    wrong = probe_of("torch", _edited(models[family], tmp_path, mistake))
    rows = _verify(wrong, right("llama.cpp", family))
    assert rows["verified"].tolist() == ["no", "no"], rows["verified_why"].tolist()


def test_two_right_engines_show_which_one_is_wrong(
    models: dict[str, Path], right: Right, probe_of: Probe, tmp_path: Path
) -> None:
    wrong = probe_of("torch", _edited(models["llama-3.1"], tmp_path, _wrong_rope))
    rewritten = _gguf(_edited(models["llama-3.1"], tmp_path / "right", lambda *_: None), tmp_path)
    rows = _verify(wrong, right("mlx", "llama-3.1"), probe_of("llama.cpp", rewritten))
    assert rows["verified"].tolist() == ["no", "yes", "yes"]
