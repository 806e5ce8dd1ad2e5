"""llama.cpp's quantiser for real, on a model that transformers made."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from backends.base import BackendError
from backends.llama_cpp.quantise import formats, quantise
from harness.models.gguf_export import export
from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from harness.roofline.mixtures import MIXTURES, NEEDS_IMPORTANCE

_TINY = {
    "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 1, "hidden_size": 256,
    "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("quantise")
    synthesise(PRESETS["llama-3.2-1b"] | _TINY, directory / "tiny")
    export(directory / "tiny", directory / "tiny.gguf", "bf16")
    return directory / "tiny.gguf"


def _tensors(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize(("weight_format", "rms"), [("q8_0", 0.01), ("q4_0", 0.12), ("q4_k_m", 0.1), ("iq4_nl", 0.1)])
def test_the_numbers_are_the_originals_rounded(original: Path, tmp_path: Path, weight_format: str, rms: float) -> None:
    path = tmp_path / "quantised.gguf"
    quantise(original, path, weight_format, n_threads=1)
    before, after = _tensors(original), _tensors(path)
    assert before.keys() == after.keys()
    for name in ("blk.0.ffn_up.weight", "blk.0.attn_q.weight"):
        exact, rounded = (gguf.dequantize(each[name].data, each[name].tensor_type) for each in (before, after))
        error = np.sqrt(np.mean((exact - rounded) ** 2) / np.mean(exact**2))
        assert 0 < error < rms, f"{name}: {error}"
    for name, tensor in after.items():
        if len(tensor.shape) == 1:
            assert np.array_equal(tensor.data, before[name].data), f"{name} is a vector, and they stay"


@pytest.mark.parametrize("weight_format", sorted(MIXTURES.keys() - NEEDS_IMPORTANCE))
def test_every_mixture_that_is_offered_is_made(original: Path, tmp_path: Path, weight_format: str) -> None:
    quantise(original, tmp_path / "quantised.gguf", weight_format, n_threads=1)
    stated = gguf.GGUFReader(tmp_path / "quantised.gguf").get_field("general.file_type").contents()
    assert gguf.LlamaFileType(stated).name == f"MOSTLY_{weight_format.upper()}"


@pytest.mark.parametrize("weight_format", sorted(NEEDS_IMPORTANCE))
def test_llama_cpp_refuses_what_needs_an_importance_matrix(original: Path, tmp_path: Path, weight_format: str) -> None:
    with pytest.raises(BackendError, match="importance matrix"):
        quantise(original, tmp_path / "quantised.gguf", weight_format, n_threads=1)


def test_it_tells_the_formats_that_it_has_names_for() -> None:
    assert {"q8_0", "q4_k_m", "q4_0", "iq4_xs", "iq2_xs", "bf16"} <= set(formats())


def test_a_file_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(BackendError, match=r"^llama.cpp cannot make q8_0: ."):
        quantise(tmp_path / "broken.gguf", tmp_path / "out.gguf", "q8_0", n_threads=1)
