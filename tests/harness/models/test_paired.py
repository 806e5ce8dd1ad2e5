"""One model in each engine's own file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness
from harness.errors import UserError
from harness.models.paired import engines, parse, sources
from harness.models.synthesis import synthesise
from harness.progress import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

_paths = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(str.strip)


@given(st.dictionaries(st.sampled_from(["torch", "mlx", "llama.cpp", "openai", "simulated"]), _paths))
def test_pairs_are_read_as_they_are_written(pairs: dict[str, str]) -> None:
    assert parse([f"{engine}={path}" for engine, path in pairs.items()]) == tuple(pairs.items())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["torch"], "--artifact torch: write ENGINE=PATH, as in torch=DIRECTORY or llama.cpp=FILE.gguf"),
        (["torch= "], "--artifact torch= : write ENGINE=PATH, as in torch=DIRECTORY or llama.cpp=FILE.gguf"),
        (
            ["llamacpp=a.gguf"],
            "--artifact llamacpp=a.gguf: no such engine, did you mean llama.cpp? "
            "(there are torch, mlx, llama.cpp, simulated, openai)",
        ),
        (["mlx=a", "mlx=b"], "--artifact mlx=b: mlx has a already; one file for each engine"),
    ],
)
def test_what_is_no_pair_is_told(words: list[str], said: str) -> None:
    with pytest.raises(UserError) as error:
        parse(words)
    assert str(error.value) == said


def _asked(*artifacts: tuple[str, str], **options: Any) -> harness.Options:
    return harness.Options(**({"models": "tiny"} | options), artifacts=artifacts)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (_asked(("torch", "nowhere/at/all")), r"^--artifact torch=nowhere/at/all: nowhere/at/all: no such file or dir"),
        (_asked(("torch", "nothere")), r"^--artifact torch=nothere: no such file or directory$"),
        (_asked(("torch", "gpt2-min")), r"^--artifact torch=gpt2-min: no such file or directory$"),
        (_asked(("torch", "gpt2-mini")), r"^--artifact torch=gpt2-mini: a preset is no file; leave --artifact out and"),
        (_asked(("torch", "x"), models=()), r"^--artifact needs exactly one -m: what the rows call the model"),
        (_asked(("torch", "x"), models=("a", "b")), r"^--artifact needs exactly one -m"),
        (_asked(("torch", "x"), models=("\n",)), r"^--artifact needs exactly one -m"),
        (_asked(("torch", "x"), backends=("mlx",)), r"^--backend mlx: no --artifact mlx=PATH says which file"),
        (_asked(("openai", "served")), r"^--artifact openai=NAME is for --backend openai"),
    ],
)
def test_a_faulty_request_is_told(options: harness.Options, said: str) -> None:
    with pytest.raises(UserError, match=said):
        harness.make_plan(options)


def test_a_servers_name_is_kept_for_whoever_asks_it() -> None:
    options = _asked(*parse(["openai=meta-llama/Llama-3.2-1B", "torch=x=y"]))
    assert dict(options.artifacts) == {"openai": "meta-llama/Llama-3.2-1B", "torch": "x=y"}
    assert engines(options) == ("torch",)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A model directory of `CONFIG` with some of it changed."""

    def make(**changed: int) -> str:
        directory = tmp_path_factory.mktemp("models") / "model"
        synthesise(CONFIG | changed, directory)
        return str(directory)

    return make


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_hidden_layers": 3}, "its layers are 3, in the file for torch 2"),
        ({"vocab_size": 576}, "its vocabulary is 576, in the file for torch 512"),
        ({"hidden_size": 96}, "its width is 96, in the file for torch 64"),
        ({"num_attention_heads": 8, "head_dim": 8}, "its heads are 8 of 8, in the file for torch 4 of 16"),
        ({"num_key_value_heads": 4}, "its key-value heads are 4, in the file for torch 2"),
        ({"intermediate_size": 192}, "its feed-forward width is 192, in the file for torch 128"),
    ],
)
def test_files_of_two_models_are_refused(made: Callable[..., str], changed: dict[str, int], said: str) -> None:
    with pytest.raises(UserError) as error:
        sources(_asked(("torch", made()), ("mlx", made(**changed))))
    assert str(error.value) == f"--artifact: the file for mlx is of another model: {said}"


def test_a_presets_name_is_that_presets(made: Callable[..., str]) -> None:
    with pytest.raises(
        UserError, match=r"the file for torch is of another model: its layers are 2, in the preset gpt2"
    ):
        sources(_asked(("torch", made()), models="gpt2"))


@pytest.mark.usefixtures("known_bandwidth")
def test_each_engine_reads_its_own_file_of_one_model(tiny_hf: Path, tiny_gguf: Path, tmp_path: Path) -> None:
    options = _asked(
        ("torch", str(tiny_hf)), ("llama.cpp", str(tiny_gguf)), n_prompt=16, n_gen=8, launches=1, repetitions=1,
        n_threads=1, output=tmp_path / "out.csv",
    )  # fmt: skip
    rows = harness.run(harness.make_plan(options), Reporter()).set_index("backend")
    assert rows["status"].to_dict() == {"torch": "ok", "llama.cpp": "ok"}
    assert set(rows["model"]) == {"tiny"}
    assert set(rows["architecture"]) == {"llama"}
    assert rows["weight_format"].to_dict() == {"torch": "bf16", "llama.cpp": "f16"}
    assert rows["n_params"].to_dict() == {"torch": 426_624, "llama.cpp": 426_624}
    assert rows["verified"].isna().all(), "weights that are not bit-identical prove nothing of each other"
    assert rows["verified_why"].tolist() == ["no other engine ran the same weights"] * 2


def test_an_engine_that_cannot_read_its_file_is_told(tiny_gguf: Path) -> None:
    with pytest.raises(UserError, match=r"^torch, tiny: only llama.cpp reads .gguf files"):
        harness.make_plan(_asked(("torch", str(tiny_gguf))))


def test_the_command_line_asks_for_a_name(tiny_hf: Path, command: Callable[..., Any]) -> None:
    result = command("run", "--artifact", f"torch={tiny_hf}", "--dry-run")
    assert result.returncode == 2
    assert result.stderr == (
        "tokenroof: --artifact needs exactly one -m: what the rows call the model of which these are the files\n"
    )
