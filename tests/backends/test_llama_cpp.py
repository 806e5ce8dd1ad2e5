"""The llama.cpp backend, on real GGUF files of a few hundred kilobytes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import llama_cpp as engine
import numpy as np
import pytest

from backends import llama_cpp
from backends.base import BackendError, LoadRequest
from backends.conformance import assert_conforms
from backends.registry import BACKENDS

LAYERS, WIDTH, HEADS, FFN, VOCAB, CONTEXT = 2, 64, 2, 96, 128, 16_384
HEAD_DIM = WIDTH // HEADS  # one KV head, so also the width of a cached key
MIB = 2**20
LOG_RESOLUTION = MIB // 100  # llama.cpp prints two decimals

BYTES_PER_ELEMENT = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}


@pytest.fixture(scope="session")
def tiny(tiny_model):
    return tiny_model(LAYERS, WIDTH, HEADS, FFN, VOCAB, CONTEXT)


@pytest.fixture(scope="session")
def model(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tiny.write(path)
    return path


@pytest.fixture(scope="session")
def windowed(tiny, tmp_path_factory):
    """A Gemma 3: five layers with a sliding window, then one without; the LM head is tied."""
    path = tmp_path_factory.mktemp("gguf") / "window.gguf"
    replace(tiny, architecture="gemma3", layers=6, window=32, tied=True).write(path)
    return path


@pytest.fixture
def request_for(model):
    return LoadRequest(model, weight_format="f32", device="cpu", n_threads=1)


@pytest.fixture
def open_session():
    """Loads sessions and closes them at the end."""
    sessions = []

    def open_one(request):
        sessions.append(llama_cpp.load(request))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.close()


def tokens_of(batch, n, seed=0):
    return np.random.default_rng(seed).integers(VOCAB, size=(batch, n)).astype(np.int32)


@pytest.mark.parametrize("flash_attn", ["auto", "off"])
def test_it_conforms(request_for, flash_attn):
    request = replace(request_for, flash_attn=flash_attn)
    assert_conforms(lambda: llama_cpp.load(request), tolerance=1e-2)


def test_it_conforms_when_a_prompt_takes_many_batches(request_for):
    request = replace(request_for, n_batch=7, n_ubatch=3, kv_k_format="f32", kv_v_format="f32")
    assert_conforms(lambda: llama_cpp.load(request), tolerance=1e-3)


@pytest.mark.parametrize("weight_format", ["q4_0", "q8_0"])
def test_quantised_weights_conform_without_repacking(model, tmp_path, weight_format):
    """In a process of its own: with repacked weights some CPUs die here, and that must not take pytest along."""
    quantised = tmp_path / f"{weight_format}.gguf"
    params = engine.llama_model_quantize_default_params()
    params.ftype = getattr(engine, f"LLAMA_FTYPE_MOSTLY_{weight_format.upper()}")
    assert engine.llama_model_quantize(str(model).encode(), str(quantised).encode(), params) == 0
    script = (
        "import sys; from pathlib import Path\n"
        "from backends import conformance, llama_cpp\n"
        "from backends.base import LoadRequest\n"
        "request = LoadRequest(Path(sys.argv[1]), sys.argv[2], device='cpu',"
        f" engine_options={BACKENDS['llama.cpp'].after_crash})\n"
        "conformance.assert_conforms(lambda: llama_cpp.load(request), tolerance=0.05)\n"
    )
    command = [sys.executable, "-c", script, str(quantised), weight_format]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("only_the_host")
def test_logits_are_those_of_llama_cpp_pythons_own_class(model, request_for, open_session):
    tokens = tokens_of(1, 40)
    reference = engine.Llama(str(model), n_ctx=256, logits_all=True, n_threads=1, verbose=False)
    reference.eval(tokens[0].tolist())
    session = open_session(replace(request_for, flash_attn="off"))  # as that class has it
    session.allocate(40, batch=1)
    np.testing.assert_allclose(session.logits(tokens)[0], reference.scores[:40], rtol=0, atol=1e-4)
    session.reset()
    ids = [session.prefill(tokens[:, :10])[0], *(ids[0] for ids in session.decode(tokens[:, 10:]))]
    assert ids == reference.scores[9:40].argmax(axis=1).tolist()


def test_facts_are_the_files(tiny, request_for, open_session):
    session = open_session(request_for)
    session.allocate(300, batch=2)
    facts = session.facts()
    n_params = sum(int(np.prod(shape)) for shape in tiny.tensors().values())
    assert (facts.n_params, facts.weight_bytes) == (n_params, 4 * n_params)
    assert (facts.weight_format, facts.kv_k_format, facts.kv_v_format) == ("f32", "f16", "f16")
    assert (session.vocab_size, session.max_context) == (VOCAB, CONTEXT)
    assert facts.kv_allocated_tokens == 512  # the next multiple of 256
    assert facts.engine_settings["n_seq_max"] == 2
    assert facts.engine_settings["kv_unified"] is False


def test_on_a_cpu_no_layer_is_on_a_gpu_whatever_llama_cpp_says(request_for, open_session):
    session = open_session(request_for)
    session.allocate(8, batch=1)
    assert (session.facts().device, session.facts().gpu_layers_effective) == ("cpu", 0)
    assert session.memory().peak_device_bytes is None
    assert set(session.facts().engine_settings["buffers"]) <= {"CPU", "CPU_Mapped", "CPU_REPACK", "AMX"}


@pytest.mark.parametrize("kv_format", BYTES_PER_ELEMENT)
def test_kv_formats(request_for, open_session, kv_format):
    """Two tensors a layer, one key or value of HEAD_DIM elements a token."""
    request = replace(request_for, kv_k_format=kv_format, kv_v_format=kv_format, flash_attn="on")
    session = open_session(request)
    session.allocate(4096, batch=2)
    expected = 2 * 4096 * LAYERS * 2 * HEAD_DIM * BYTES_PER_ELEMENT[kv_format]
    kv_bytes = session.memory().kv_cache_bytes
    assert kv_bytes is not None
    assert abs(kv_bytes - expected) <= LOG_RESOLUTION
    assert session.facts().flash_attn == "on"
    # Four bits bend the logits; those of another model would be at 1.4 times the norm.
    plain = open_session(request_for)
    plain.allocate(64, batch=1)
    ours, exact = session.logits(tokens_of(2, 64))[:1], plain.logits(tokens_of(2, 64)[:1])
    assert np.linalg.norm(ours - exact) < 0.5 * np.linalg.norm(exact)


def test_a_sliding_window_that_moved_on_is_not_cut(windowed, open_session):
    """A window of 32 in a cache of 256: after 600 tokens the cells that position 200 needs are overwritten."""
    session = open_session(LoadRequest(windowed, "f32", device="cpu", n_ubatch=16))
    tokens = tokens_of(1, 700)
    session.allocate(700, batch=1)
    whole = session.logits(tokens)
    session.reset()
    session.prefill(tokens[:, :600])
    assert session.reset(598) == 598
    np.testing.assert_allclose(session.logits(tokens[:, 598:])[0], whole[0, 598:], rtol=0, atol=0.05)
    assert session.reset(200) == 0
    np.testing.assert_allclose(session.logits(tokens)[0], whole[0], rtol=0, atol=0.05)

    # Cut where it can be, one changed token changes the answers to those of a fresh start.
    changed = tokens.copy()
    changed[:, 690] = (changed[:, 690] + 1) % VOCAB
    session.reset()
    fresh = session.logits(changed)
    session.reset()
    session.prefill(tokens)
    assert session.reset(690) == 690
    np.testing.assert_allclose(session.logits(changed[:, 690:])[0], fresh[0, 690:], rtol=0, atol=0.05)
    assert np.abs(fresh[0, 690:] - whole[0, 690:]).max() > 0.5


def test_a_windows_cache_holds_the_window_and_not_the_context(windowed, open_session):
    session = open_session(LoadRequest(windowed, "f32", device="cpu", n_ubatch=16))
    session.allocate(8192, batch=1)
    # The window and what is computed at once, rounded up to 256; the sixth layer holds the context.
    tokens = 5 * 256 + 8192
    assert abs(session.memory().kv_cache_bytes - tokens * 2 * HEAD_DIM * 2) <= LOG_RESOLUTION


def test_a_format_whose_blocks_do_not_fit_a_head_is_refused_in_one_line(tiny, tmp_path, open_session):
    path = tmp_path / "narrow.gguf"
    replace(tiny, heads=4).write(path)
    session = open_session(LoadRequest(path, "f32", device="cpu", kv_k_format="q8_0", kv_v_format="q8_0"))
    with pytest.raises(BackendError, match=r"q8_0 with block size 32 does not divide n_embd_head_k=16") as refused:
        session.allocate(64, batch=1)
    assert "\n" not in str(refused.value)


def test_nothing_is_printed(request_for, open_session, capfd):
    session = open_session(request_for)
    session.allocate(16, batch=1)
    session.prefill(tokens_of(1, 8))
    session.close()
    assert capfd.readouterr() == ("", "")


def refusal(request):
    with pytest.raises(BackendError) as refused:
        llama_cpp.load(request)
    message = str(refused.value)
    assert "\n" not in message
    assert str(request.artifact.parent) not in message
    return message


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight_format": "bf16"}, "tiny.gguf holds f32 weights, not bf16"),
        ({"engine_options": {"speed": 11}}, "no engine option speed"),
        ({"kv_k_format": "q3_k"}, "no KV cache format 'q3_k'"),
        ({"flash_attn": "maybe"}, "not 'maybe'"),
        ({"kv_v_format": "q8_0", "flash_attn": "off"}, "use -fa on"),
        ({"n_gpu_layers": 5}, "-ngl 5"),
        ({"device": "CUDA7"}, "CUDA7|--force-reinstall"),
    ],
)
def test_what_cannot_be_honoured_is_refused(request_for, changes, reason):
    with pytest.raises(BackendError, match=reason):
        llama_cpp.load(replace(request_for, **changes))


@pytest.mark.skipif(bool(llama_cpp.describe().accelerators), reason="this build has a GPU to put layers on")
@pytest.mark.parametrize("changes", [{"device": "auto", "n_gpu_layers": 99}, {"device": "gpu"}])
def test_without_gpu_offload_layers_on_a_gpu_are_refused_with_the_line_that_helps(request_for, changes):
    message = refusal(replace(request_for, **changes))
    assert "pip install --force-reinstall --no-cache-dir llama-cpp-python" in message
    assert ("GGML_METAL" if sys.platform == "darwin" else "GGML_CUDA") in message


def test_a_missing_file_is_named(request_for, tmp_path):
    assert "nowhere.gguf" in refusal(replace(request_for, artifact=tmp_path / "nowhere.gguf"))


def test_a_truncated_file_is_told_in_llama_cpps_words(model, request_for, tmp_path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:100_000])
    assert "corrupted or incomplete" in refusal(replace(request_for, artifact=cut))


def test_a_file_that_is_no_gguf_is_told(request_for, tmp_path):
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04" * 1000)
    assert "invalid magic" in refusal(replace(request_for, artifact=other))


def test_an_unknown_architecture_is_named(tiny, request_for, tmp_path):
    path = tmp_path / "strange.gguf"
    replace(tiny, architecture="perceptron").write(path)
    assert "unknown model architecture: 'perceptron'" in refusal(replace(request_for, artifact=path))


def test_more_sequences_than_a_batch_holds_are_refused(request_for, open_session):
    session = open_session(replace(request_for, n_batch=4))
    with pytest.raises(BackendError, match="-b is 4"):
        session.allocate(8, batch=5)


def test_a_token_outside_the_vocabulary_is_refused(request_for, open_session):
    session = open_session(request_for)
    session.allocate(8, batch=1)
    with pytest.raises(BackendError, match=r"invalid token\[0\] = 5000"):
        session.prefill(np.array([[5000]], np.int32))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to RLIMIT_AS")
def test_too_large_a_cache_is_out_of_memory(model):
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from backends import llama_cpp\n"
        "from backends.base import LoadRequest, OutOfMemoryError\n"
        "session = llama_cpp.load(LoadRequest(Path(sys.argv[1]), 'f32', device='cpu'))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "try: session.allocate(1 << 25, 1)\n"
        "except OutOfMemoryError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # Two layers, a key and a value of 32 elements in f16 each: 8 GiB for 2^25 tokens.
    assert "failed to allocate buffer of size 8589934592" in done.stdout


def test_describe_tells_the_versions():
    info = llama_cpp.describe()
    assert info.version == engine.__version__
    assert "CPU: " in info.build
    assert "\n" not in info.build
