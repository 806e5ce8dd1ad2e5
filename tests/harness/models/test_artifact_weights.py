"""Weights from real files, against llama.cpp's own count, mlx-lm's conversion and the shape's definition."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from harness.errors import UserError
from harness.models import source
from harness.models.artifact_weights import weights_of
from harness.models.gguf_export import export
from harness.models.presets import PRESETS
from harness.models.published_format import published_format
from harness.models.safetensors_file import INDEX_NAME, tensor_table
from harness.models.synthesis import synthesise
from harness.roofline.formats import FORMATS
from harness.roofline.nominal import nominal_weights
from harness.roofline.weights import Use, Weights

_SHAPE = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "max_position_embeddings": 256,
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": PRESETS["gpt2-mini"],
    "llama": PRESETS["llama-3.1-8b"] | _SHAPE,
    "llama-tied": PRESETS["llama-3.2-1b"] | _SHAPE,
    "qwen3_moe": PRESETS["qwen3-30b-a3b"] | _SHAPE | {"num_experts": 4, "num_experts_per_tok": 2,
                                                      "moe_intermediate_size": 256},
}  # fmt: skip


class Directories:
    """Hugging Face directories, synthesised when first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __getitem__(self, name: str) -> Path:
        path = self._root / name
        if not path.exists():
            synthesise(_CONFIGS[name], path, seed=0)
        return path


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Directories:
    return Directories(tmp_path_factory.mktemp("models"))


def _weights(path: Path, weight_format: str | None = None) -> Weights:
    return weights_of(source.resolve_shape(str(path)), weight_format)


def _tables(weights: Weights) -> int:
    return sum(part.n_bytes for part in weights.parts if part.use is Use.LOOKED_UP)


# --- GGUF


def _llama_cpp_counts(path: Path) -> tuple[int, int]:
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    assert model
    try:
        return llama_cpp.llama_model_size(model), llama_cpp.llama_model_n_params(model)
    finally:
        llama_cpp.llama_model_free(model)


_QUANTISE = """
import ctypes, sys, llama_cpp
params = llama_cpp.llama_model_quantize_default_params()
params.ftype, params.nthread = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + sys.argv[3]), 1
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)))
"""


def _quantised(exported: Path, mixture: str, path: Path) -> Path:
    line = [sys.executable, "-c", _QUANTISE, exported, path, mixture]
    subprocess.run(line, check=True, capture_output=True, timeout=120)
    return path


@pytest.mark.parametrize("weight_format", ["bf16", "f16", "f32", "Q4_K_M", "Q4_0", "Q8_0", "MXFP4_MOE"])
@pytest.mark.parametrize("name", _CONFIGS)
def test_a_gguf_file_weighs_what_llama_cpp_says(
    directories: Directories, name: str, weight_format: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    if weight_format in ("bf16", "f16", "f32"):
        export(directories[name], path, weight_format)
    else:
        export(directories[name], tmp_path / "f32.gguf", "f32")
        _quantised(tmp_path / "f32.gguf", weight_format, path)
    weights = _weights(path)
    assert (weights.n_bytes, weights.n_params) == _llama_cpp_counts(path)
    if weight_format not in ("bf16", "f16", "f32"):
        nominal = nominal_weights(weights.architecture, weight_format)
        frequencies = sum(part.n_bytes for part in weights.parts if part.name == "rope_freqs.weight")
        assert weights.n_bytes - frequencies == nominal.n_bytes
        assert weights.streamed_bytes() - frequencies == pytest.approx(nominal.streamed_bytes())
        assert [weights.layer_bytes(i) for i in range(2)] == [nominal.layer_bytes(i) for i in range(2)]


def test_a_gguf_file_stays_as_it_is(directories: Directories, tmp_path: Path) -> None:
    export(directories["llama"], tmp_path / "model.gguf", "f16")
    with pytest.raises(UserError, match=r"in their formats already; leave out -w"):
        _weights(tmp_path / "model.gguf", "q4_k_m")


# --- Hugging Face directories


@pytest.mark.parametrize("name", _CONFIGS)
def test_a_directory_weighs_what_its_shape_says(directories: Directories, name: str) -> None:
    weights = _weights(directories[name])
    nominal = nominal_weights(weights.architecture, "bf16")
    assert weights.n_bytes == nominal.n_bytes
    assert weights.n_params == nominal.n_params
    assert _tables(weights) == _tables(nominal)
    assert weights.output_bytes == nominal.output_bytes
    for batch in (1, 3):
        ours = weights.expected_streamed_bytes(batch)
        assert ours == pytest.approx(nominal.expected_streamed_bytes(batch))
    assert _weights(directories[name], "f32").n_bytes == 2 * weights.n_bytes
    assert _weights(directories[name], "Q4_K_M") == nominal_weights(weights.architecture, "q4_k_m")


_MLX_CONVERT = """
import sys, mlx_lm
for name, bits, group in (("4bit", 4, 64), ("8bit", 8, 64), ("4bit-g32", 4, 32)):
    mlx_lm.convert(sys.argv[1], f"{sys.argv[2]}/{name}", quantize=True, q_bits=bits, q_group_size=group)
"""


@pytest.mark.parametrize("name", _CONFIGS)
def test_mlxs_conversion(directories: Directories, name: str, tmp_path: Path) -> None:
    line = [sys.executable, "-c", _MLX_CONVERT, directories[name], tmp_path]
    subprocess.run(line, check=True, capture_output=True, timeout=200)
    for path in tmp_path.iterdir():
        weights = _weights(path)
        nominal = nominal_weights(weights.architecture, path.name)
        assert weights.n_bytes == nominal.n_bytes
        assert weights.streamed_bytes() == pytest.approx(nominal.streamed_bytes())
        assert published_format(json.loads((path / "config.json").read_text())) == path.name
        # Packed numbers are unpacked to be converted.
        assert _weights(path, "f16") == nominal_weights(weights.architecture, "f16")


def test_what_is_not_decoding_is_idle(directories: Directories, tmp_path: Path) -> None:
    """The last layer is declared to predict further tokens, as in DeepSeek's checkpoints."""
    path = Path(shutil.copytree(directories["llama"], tmp_path / "copy"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    weights, whole = _weights(path), _weights(directories["llama"])
    assert weights.n_bytes == whole.n_bytes
    assert weights.streamed_bytes() == whole.streamed_bytes() - whole.layer_bytes(1)


def test_an_unknown_format_is_told(directories: Directories) -> None:
    with pytest.raises(UserError, match=r"unknown format 'q4_km'; there is .*q4_k_m"):
        _weights(directories["llama"], "q4_km")


# --- No weights at all


@pytest.fixture
def config_only(directories: Directories, tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    shutil.copy(directories["llama"] / "config.json", path)
    return path


def test_a_configuration_will_do_for_a_prediction(config_only: Path, directories: Directories) -> None:
    published = _weights(directories["llama"])
    for path in (config_only, config_only / "config.json"):
        assert _weights(path).n_bytes == published.n_bytes
        assert source.resolve_shape(str(path)).name == "model"


def test_a_run_asks_for_the_weights(config_only: Path) -> None:
    with pytest.raises(UserError, match=r"no \.safetensors file beside config\.json.*a run does"):
        source.resolve(str(config_only))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"torch_dtype": "float16"}, "f16"),
        ({"dtype": "float32"}, "f32"),
        ({"text_config": {"dtype": "float16"}}, "f16"),
        ({}, "bf16"),
        ({"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}, "mxfp4_bf16"),
        ({"quantization": {"group_size": 32, "bits": 6}}, "6bit-g32"),
    ],
)
def test_what_a_configuration_says_of_its_weights(config: dict[str, Any], name: str) -> None:
    assert published_format(config) == name


def test_another_quantisation_is_told() -> None:
    with pytest.raises(UserError, match=r"weights quantised by 'awq'; name a format .* with -w"):
        published_format({"quantization_config": {"quant_method": "awq", "bits": 4}})


# --- Damage


def test_a_shard_that_is_missing_is_told(directories: Directories, tmp_path: Path) -> None:
    path = Path(shutil.copytree(directories["llama"], tmp_path / "copy"))
    names = dict.fromkeys(tensor_table(path), "model-00002-of-00002.safetensors")
    (path / INDEX_NAME).write_text(json.dumps({"weight_map": names}))
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors: missing, though"):
        source.resolve(str(path))


def test_every_plain_format_counts_its_bytes(directories: Directories) -> None:
    n_params = _weights(directories["gpt2"]).n_params
    for name in ("f32", "f16", "bf16"):
        assert _weights(directories["gpt2"], name).n_bytes == n_params * FORMATS[name].element_bytes
