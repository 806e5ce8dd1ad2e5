"""Weights from real files, against llama.cpp's own count, mlx-lm's conversion and the shape's definition."""

import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

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

pytestmark = pytest.mark.usefixtures("only_the_host")

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
    "gpt2": PRESETS["gpt2-mini"] | {"vocab_size": 1024, "bos_token_id": 1, "eos_token_id": 2},
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


_PLAIN, _MIXTURES = ("bf16", "f16", "f32"), ("Q4_K_M", "Q4_0", "Q8_0", "MXFP4_MOE")
_QUANTISE = """
import ctypes, pathlib, sys, llama_cpp
folder, *mixtures = sys.argv[1:]
params = llama_cpp.llama_model_quantize_default_params()
params.nthread = 1
for mixture in mixtures:
    params.ftype = getattr(llama_cpp, "LLAMA_FTYPE_MOSTLY_" + mixture)
    paths = [str(pathlib.Path(folder, name + ".gguf")).encode() for name in ("f32", mixture)]
    assert llama_cpp.llama_model_quantize(*paths, ctypes.byref(params)) == 0, mixture
"""


@pytest.fixture(scope="module")
def gguf_folder(directories: Directories, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model as GGUF files of every format, made when first asked for; a process of its own quantises all of them."""

    @functools.cache
    def folder(name: str) -> Path:
        path = tmp_path_factory.mktemp(name)
        for weight_format in _PLAIN:
            export(directories[name], path / f"{weight_format}.gguf", weight_format)
        line = [sys.executable, "-c", _QUANTISE, path, *_MIXTURES]
        subprocess.run(line, check=True, capture_output=True, timeout=200)
        return path

    return folder


@pytest.mark.parametrize("weight_format", [*_PLAIN, *_MIXTURES])
@pytest.mark.parametrize("name", _CONFIGS)
def test_a_gguf_file_weighs_what_llama_cpp_says(
    gguf_folder: Callable[[str], Path], name: str, weight_format: str
) -> None:
    path = gguf_folder(name) / f"{weight_format}.gguf"
    weights = _weights(path)
    assert (weights.n_bytes, weights.n_params) == _llama_cpp_counts(path)
    if weight_format in _MIXTURES:
        nominal = nominal_weights(weights.architecture, weight_format)
        frequencies = sum(part.n_bytes for part in weights.parts if part.name == "rope_freqs.weight")
        assert weights.n_bytes - frequencies == nominal.n_bytes
        assert weights.streamed_bytes() - frequencies == pytest.approx(nominal.streamed_bytes())
        assert [weights.layer_bytes(i) for i in range(2)] == [nominal.layer_bytes(i) for i in range(2)]


def test_a_gguf_file_can_be_quantised_once(gguf_folder: Callable[[str], Path]) -> None:
    folder = gguf_folder("llama-tied")
    nominal = _weights(folder / "f16.gguf", "q4_k_m")
    quantised = _weights(folder / "Q4_K_M.gguf")
    frequencies = sum(part.n_bytes for part in quantised.parts if part.name == "rope_freqs.weight")
    assert nominal.n_bytes == quantised.n_bytes - frequencies
    with pytest.raises(UserError, match=r"a quantised GGUF file's weights stay in their formats; leave out -w"):
        _weights(folder / "Q8_0.gguf", "q4_k_m")


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
import pathlib, sys, mlx_lm
folder, *models = map(pathlib.Path, sys.argv[1:])
for model in models:
    (folder / model.name).mkdir()
    for name, bits, group in (("4bit", 4, 64), ("8bit", 8, 64), ("4bit-g32", 4, 32)):
        mlx_lm.convert(model, folder / model.name / name, quantize=True, q_bits=bits, q_group_size=group)
"""


@pytest.fixture(scope="module")
def converted(directories: Directories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each model, with what mlx-lm makes of it; one process, since importing it takes seconds."""
    folder = tmp_path_factory.mktemp("mlx")
    line = [sys.executable, "-c", _MLX_CONVERT, folder, *(directories[name] for name in _CONFIGS)]
    subprocess.run(line, check=True, capture_output=True, timeout=400)
    return folder


@pytest.mark.parametrize("name", _CONFIGS)
def test_mlxs_conversion(converted: Path, name: str) -> None:
    paths = list((converted / name).iterdir())
    assert len(paths) == 3
    for path in paths:
        weights = _weights(path)
        nominal = nominal_weights(weights.architecture, path.name)
        assert weights.n_bytes == nominal.n_bytes
        assert weights.streamed_bytes() == pytest.approx(nominal.streamed_bytes())
        assert published_format(json.loads((path / "config.json").read_text())) == path.name
        # Packed numbers are unpacked to be converted.
        assert _weights(path, "f16") == nominal_weights(weights.architecture, "f16")
        _with_layers(path, weights.architecture.n_layers + 1)
        with pytest.raises(UserError, match=rf"no tensors of layer {weights.architecture.n_layers}, but config\.json"):
            source.resolve_shape(str(path))


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


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
@pytest.mark.parametrize("value", ["int3", "float8_e4m3fn", ["a"], {"a": 1}, 5, True])
def test_a_dtype_that_is_none_is_told(key: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"config\.json: {key} is {re.escape(repr(value))}, which is none of float32"):
        published_format({key: value})


@pytest.mark.parametrize("key", ["quantization_config", "quantization"])
@pytest.mark.parametrize("value", [5, ["a"], "x", True, 0.5])
def test_a_quantisation_that_is_no_object_is_told(key: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"config\.json: {key} is {re.escape(repr(value))}, not an object"):
        published_format({key: value})


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_INNER = ("quant_method", "bits", "group_size", "dtype", "torch_dtype", "quantization_config", "model_type", "3")
_OBJECTS = st.dictionaries(st.sampled_from(_INNER), _VALUES, max_size=3)
_OF_WEIGHTS = (
    "torch_dtype",
    "dtype",
    "quantization_config",
    "quantization",
    "text_config",
    "per_layer_config",
    "layer_types",
)


@given(name=st.sampled_from(sorted(PRESETS)), data=st.data())
def test_any_configuration_is_weighed_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    keys = st.sampled_from([*PRESETS[name], *_OF_WEIGHTS]) | st.sampled_from(_OF_WEIGHTS)
    n_layers = PRESETS[name].get("num_hidden_layers", 0)
    by_layer = _VALUES.map(lambda value: [value] * n_layers)
    changes = data.draw(st.dictionaries(keys, _VALUES | _OBJECTS | by_layer, min_size=1, max_size=2))
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(json.dumps({**PRESETS[name], **changes}))
    try:
        weights = _weights(path)
    except UserError:
        return
    assert weights.n_bytes > 0
    assert weights.streamed_bytes() > 0


# --- Contradictions


def _with_layers(path: Path, n_layers: int) -> None:
    config = json.loads((path / "config.json").read_text())
    key = "n_layer" if "n_layer" in config else "num_hidden_layers"
    (path / "config.json").write_text(json.dumps(config | {key: n_layers}))


def _tensor_file(copy: Path) -> Path:
    (file,) = copy.glob("*.safetensors")
    return file


_DOWN, _UP = "model.layers.1.mlp.down_proj.weight", "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        # Of a layer: queries and output 2 × 256 × 256, keys and values 2 × 256 × 128, three of 256 × 512.
        ({_DOWN: None}, "in layer 1 have 458752 elements, but config.json calls for 589824"),
        ({_UP: (512, 128)}, "in layer 0 have 524288 elements, but config.json calls for 589824"),
        ({"model.layers.1.adapter.weight": (8, 256)}, "in layer 1 have 591872 elements"),
        ({"mystery.weight": (10, 10)}, "outside the layers have 524388 elements, but config.json calls for 524288"),
        ({"lm_head.weight": None}, "outside the layers have 262144 elements"),
    ],
)
def test_tensors_that_contradict_the_configuration_are_told(
    directories: Directories, tmp_path: Path, tensors: dict[str, tuple[int, int] | None], said: str
) -> None:
    path = Path(shutil.copytree(directories["llama"], tmp_path / "copy"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    held = load_file(_tensor_file(path))
    for name, shape in tensors.items():
        held.pop(name, None)
        if shape is not None:
            held[name] = torch.zeros(shape, dtype=torch.bfloat16)
    save_file(held, _tensor_file(path))
    with pytest.raises(UserError, match=re.escape(said)):
        source.resolve_shape(str(path))


def test_vectors_beside_the_parameters_are_no_contradiction(directories: Directories, tmp_path: Path) -> None:
    path = Path(shutil.copytree(directories["llama"], tmp_path / "copy"))
    held = load_file(_tensor_file(path))
    held["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(32)
    held["model.layers.0.layer_scalar"] = torch.zeros(1)
    held["model.layers.1.mlp.gate.e_score_correction_bias"] = torch.zeros(8)
    save_file(held, _tensor_file(path))
    assert source.resolve(str(path)).architecture.n_layers == 2


@pytest.mark.parametrize("name", _CONFIGS)
def test_a_layer_without_tensors_is_told(directories: Directories, name: str, tmp_path: Path) -> None:
    path = Path(shutil.copytree(directories[name], tmp_path / "copy"))
    n_layers = source.resolve_shape(str(path)).architecture.n_layers
    _with_layers(path, n_layers + 2)
    with pytest.raises(UserError, match=rf"no tensors of layer {n_layers}, but config\.json has {n_layers + 2} layers"):
        source.resolve_shape(str(path))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("llama.block_count", 4, "no tensors of layer 2, but its metadata has 4 layers"),
        ("llama.feed_forward_length", 256, "in layer 0 have 589824 elements, but its metadata calls for 393216"),
        ("llama.attention.head_count_kv", 4, "in layer 0 have 589824 elements, but its metadata calls for 655360"),
    ],
)
def test_a_gguf_file_that_contradicts_itself_is_told(
    directories: Directories, tmp_path: Path, key: str, value: int, said: str
) -> None:
    path = tmp_path / "model.gguf"
    export(directories["llama"], path, "f16")
    content = bytearray(path.read_bytes())
    place = content.index(key.encode()) + len(key) + 4  # behind the key stands the type of the value, uint32
    content[place : place + 4] = value.to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(said)):
        source.resolve_shape(str(path))


# --- Damage


def test_a_shard_that_is_missing_is_told(directories: Directories, tmp_path: Path) -> None:
    path = Path(shutil.copytree(directories["llama"], tmp_path / "copy"))
    names = dict.fromkeys(tensor_table(path), "model-00002-of-00002.safetensors")
    (path / INDEX_NAME).write_text(json.dumps({"weight_map": names}))
    with pytest.raises(UserError, match=r"missing model-00002-of-00002\.safetensors, which model"):
        source.resolve(str(path))


def test_every_plain_format_counts_its_bytes(directories: Directories) -> None:
    n_params = _weights(directories["gpt2"]).n_params
    for name in ("f32", "f16", "bf16"):
        assert _weights(directories["gpt2"], name).n_bytes == n_params * FORMATS[name].element_bytes
