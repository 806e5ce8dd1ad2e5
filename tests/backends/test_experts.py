"""The experts that each engine says a step reads, against the logits of transformers' own routers."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from backends.base import LoadRequest, Session
from backends.registry import BACKENDS
from harness.models.gguf_export import export

pytestmark = pytest.mark.usefixtures("only_the_host")

SHAPE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,  # so wide that rounding decides nothing
    "num_experts_per_tok": 2,
}
CONFIGS = {
    "qwen3-moe": transformers.Qwen3MoeConfig(
        **SHAPE, num_experts=8, moe_intermediate_size=32, intermediate_size=32, norm_topk_prob=True
    ),
    "mixtral": transformers.MixtralConfig(**SHAPE, num_local_experts=4, intermediate_size=32, sliding_window=None),
}
TOP_K, FIRST, N, BATCH = 2, 6, 14, 3
TOKENS = np.random.default_rng(7).integers(0, 256, (BATCH, N)).astype(np.int32)


class Mixture:
    """A saved model, and what its own routers choose."""

    def __init__(self, config: transformers.PreTrainedConfig, directory: Path) -> None:
        self.directory = directory
        torch.manual_seed(3)
        self._model = transformers.AutoModelForCausalLM.from_config(config).eval()
        self._model.save_pretrained(directory)
        self.gguf = directory / "model.gguf"
        export(directory, self.gguf, "f32")

    def session(self, backend: str) -> Session:
        path = self.gguf if backend == "llama.cpp" else self.directory
        return BACKENDS[backend].import_module().load(LoadRequest(path, "f32", device="cpu"))

    def read(self) -> np.ndarray:
        """`[steps, layers]`: experts that the tokens of a step choose together."""
        with torch.inference_mode():
            told = self._model(torch.tensor(TOKENS.astype(np.int64)), output_router_logits=True).router_logits
        counts = np.zeros((N - FIRST, len(told)), int)
        for layer, logits in enumerate(told):
            chosen = logits.reshape(BATCH, N, -1).topk(TOP_K).indices
            for step in range(FIRST, N):
                counts[step - FIRST, layer] = len(set(chosen[:, step].flatten().tolist()))
        return counts


@pytest.fixture(scope="module", params=CONFIGS)
def mixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mixture:
    return Mixture(CONFIGS[request.param], tmp_path_factory.mktemp("mixture"))


@pytest.mark.parametrize("backend", ["torch", "mlx", "llama.cpp"])
def test_an_engine_reads_what_the_routers_choose(mixture: Mixture, backend: str) -> None:
    expected = mixture.read()
    assert TOP_K < expected.mean() < BATCH * TOP_K  # the sequences neither all agree nor all differ
    session = mixture.session(backend)
    hit = session.experts_hit(TOKENS, FIRST)
    assert hit is not None
    assert hit.tolist() == expected.tolist()

    alone = session.experts_hit(TOKENS[:1], 0)
    assert alone is not None
    assert alone.shape == (N, 2)
    assert (alone == TOP_K).all()
    alike = session.experts_hit(np.repeat(TOKENS[:1], 5, axis=0), FIRST)
    assert alike is not None
    assert (alike == TOP_K).all()

    # And it goes on as if nobody had looked.
    session.allocate(N, BATCH)
    logits = session.logits(TOKENS)
    session.allocate(N, BATCH)
    assert (session.prefill(TOKENS) == logits[:, -1].argmax(axis=1)).all()
    session.close()


@pytest.mark.parametrize("backend", ["torch", "mlx", "llama.cpp"])
def test_a_dense_model_has_none_to_tell_of(tmp_path: Path, backend: str) -> None:
    config = transformers.LlamaConfig(**{**SHAPE, "num_hidden_layers": 1}, intermediate_size=64)
    dense = Mixture(config, tmp_path)
    session = dense.session(backend)
    assert session.experts_hit(TOKENS, FIRST) is None
    session.close()


def test_many_sequences_at_once_are_one_step(mixture: Mixture) -> None:
    """llama.cpp computes such a step in parts."""
    load = BACKENDS["llama.cpp"].import_module().load
    session = load(LoadRequest(mixture.gguf, "f32", device="cpu", n_batch=8, n_ubatch=2))
    hit = session.experts_hit(TOKENS, FIRST)
    session.close()
    assert hit is not None
    assert hit.tolist() == mixture.read().tolist()
