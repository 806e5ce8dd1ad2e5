"""Of which works the quality is measured, and what each is set beside."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from backends.base import EngineInfo
from harness.estimate import Rates
from harness.models.source import resolve
from harness.options import Options
from harness.quality.questions import Question, of_kv_cache, of_weights
from harness.work import Work, combinations

NOT_TRAINED = "the weights are random: the change would be that of their initialisation"


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _work(model: Path | str, **options: object) -> Work:
    (work,) = combinations(Options(**options), [resolve(str(model))], {"llama.cpp": EngineInfo("1", "CPU")})
    return work


def test_what_is_not_quantised_loses_nothing(trained: Path) -> None:
    plain = _work(trained, kv_k_format="f16", kv_v_format="f16")
    assert of_weights(plain) == of_weights(_work("gpt2-mini")) == "the weights are not quantised"
    assert of_kv_cache(plain) == of_kv_cache(_work("gpt2-mini")) == "the KV cache is not quantised"


def test_random_weights_have_no_quality() -> None:
    assert of_weights(_work("gpt2-mini", weights=("q4_0",))) == NOT_TRAINED
    assert of_kv_cache(_work("gpt2-mini", kv_v_format="q8_0")) == NOT_TRAINED


def test_a_files_own_bits_have_no_known_original(tiny_gguf: Path, tmp_path: Path) -> None:
    assert of_weights(_work(tiny_gguf)) == "the weights are not quantised"
    quantised = tmp_path / "tiny-q8_0.gguf"
    script = (
        "import sys; from pathlib import Path; from backends.llama_cpp.quantise import quantise\n"
        "quantise(Path(sys.argv[1]), Path(sys.argv[2]), 'q8_0', 1)"
    )
    subprocess.run([sys.executable, "-c", script, tiny_gguf, quantised], check=True, timeout=120)
    assert of_weights(_work(quantised)) == (
        "the weights were quantised by others, and their unquantised original is not known"
    )


def test_a_mask_beside_the_weights_is_no_quantisation(tiny_hf: Path, tmp_path: Path) -> None:
    """Old checkpoints keep a causal mask in each layer, and the numbers of positions."""
    folder = Path(shutil.copytree(tiny_hf, tmp_path / "old"))
    (shard,) = folder.glob("*.safetensors")
    tensors = load_file(shard) | {"model.layers.0.self_attn.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool)}
    save_file(tensors, shard)
    assert of_weights(_work(folder, weights=None)) == "the weights are not quantised"


def test_each_question_is_of_one_thing(trained: Path) -> None:
    """With few bits in both, the weights are judged with a full cache, and the cache with the weights as they are."""
    both = _work(trained, weights=("q4_0",), kv_k_format="q8_0", kv_v_format="q4_0", n_threads=(1,))
    weights, cache = of_weights(both), of_kv_cache(both)
    assert isinstance(weights, Question)
    assert isinstance(cache, Question)
    formats = [
        (each.settings.weights, each.settings.kv_k_format, each.settings.kv_v_format)
        for each in (weights.unquantised, weights.quantised, cache.unquantised, cache.quantised)
    ]
    full = ("auto", "auto")
    assert formats == [("bf16", *full), ("q4_0", *full), ("q4_0", *full), ("q4_0", "q8_0", "q4_0")]
    assert {each.settings.n_threads for each in (weights.unquantised, cache.unquantised)} == {1}


def test_a_quantised_kind_of_cache_is_one_too(trained: Path) -> None:
    question = of_kv_cache(_work(trained, cache_kind=("quantized",)))
    assert isinstance(question, Question)
    assert (question.quantised.settings.cache_kind, question.unquantised.settings.cache_kind) == ("quantized", "auto")
    static = of_weights(_work(trained, cache_kind=("static",), weights=("q4_0",)))
    assert isinstance(static, Question)
    assert static.unquantised.settings.cache_kind == "static", "what quantises nothing stays"
