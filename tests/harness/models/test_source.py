"""From a word to an artifact: presets, directories, files, and everything that can be wrong with them."""

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import llama_cpp
import pytest

from harness.errors import UserError
from harness.models import artifacts, cache, presets_table, sizes, source
from harness.models.artifacts import Artifact
from harness.models.presets import PRESETS
from harness.models.safetensors_file import INDEX_NAME, tensor_table
from harness.models.weights_id import weights_id

_PRESET = "gpt2-mini"
_PARAMS = 24_721_152


@pytest.fixture
def hf() -> Artifact:
    return artifacts.prepare(source.resolve(_PRESET), "hf", None)


@pytest.fixture
def gguf() -> Artifact:
    return artifacts.prepare(source.resolve(_PRESET), "gguf", "bf16")


@pytest.fixture
def copy(hf: Artifact, tmp_path: Path) -> Path:
    return Path(shutil.copytree(hf.path, tmp_path / "copy"))


def test_a_preset_is_resolved_without_writing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "none"))
    model = source.resolve("llama-3.1-8b")
    assert (model.name, model.origin, model.path, model.weights_origin) == ("llama-3.1-8b", "preset", None, "synthetic")
    assert sizes.n_params(model) == 8_030_261_248
    assert artifacts.disk_needed(model, "hf", None) == sizes.weight_bytes(model, "bf16") == 2 * 8_030_261_248
    assert artifacts.disk_needed(model, "gguf", "f32") == sizes.weight_bytes(model, "f32") == 4 * 8_030_261_248
    assert not (tmp_path / "none").exists()


def test_a_preset_is_synthesised_once(hf: Artifact) -> None:
    model = source.resolve(_PRESET)
    assert hf.weights_bytes == 2 * _PARAMS
    assert artifacts.disk_needed(model, "hf", None) == 0
    reports: list[tuple[str, int, int]] = []
    assert artifacts.prepare(model, "hf", None, lambda *report: reports.append(report)) == hf
    assert reports == []


@pytest.mark.usefixtures("only_the_host")
def test_the_export_has_the_same_weights_and_llama_cpp_loads_it(hf: Artifact, gguf: Artifact) -> None:
    assert gguf.weights_id == hf.weights_id
    loaded = llama_cpp.Llama(str(gguf.path), n_ctx=8, verbose=False)
    # llama.cpp counts the tensors of the file, and GPT-2's have the tied embedding once.
    assert llama_cpp.llama_model_n_params(loaded.model) == _PARAMS
    loaded.close()


def test_what_prepare_wrote_is_a_model_to_name(hf: Artifact, gguf: Artifact) -> None:
    by_directory, by_file = source.resolve(str(hf.path)), source.resolve(str(gguf.path))
    preset = source.resolve(_PRESET)
    assert by_directory.architecture == by_file.architecture == preset.architecture
    assert by_directory.weights_origin == "synthetic"
    assert sizes.n_params(by_directory) == sizes.n_params(by_file) == _PARAMS
    assert artifacts.prepare(by_directory, "hf", "f32").path == hf.path
    assert artifacts.prepare(by_file, "gguf", None).path == gguf.path
    assert artifacts.prepare(by_file, "gguf", None).weights_bytes == gguf.weights_bytes


def test_other_weights_have_another_id(hf: Artifact, copy: Path) -> None:
    name = str(hf.path)
    assert weights_id(source.resolve(str(copy))) == weights_id(source.resolve(name))
    entry = tensor_table(copy)["h.1.mlp.c_fc.weight"]
    with entry.path.open("r+b") as file:
        file.seek(entry.offset)
        file.write(b"\x00\x01")
    assert weights_id(source.resolve(str(copy))) != weights_id(source.resolve(name))


def test_the_table_of_presets(hf: Artifact) -> None:
    table = presets_table.models_table().set_index("name")
    assert list(table.index) == list(PRESETS)
    assert table.loc["llama-3.1-8b"].to_dict() == {
        "params": 8_030_261_248,
        "weights_bytes": 16_060_522_496,
        "kv_bytes_per_token": 131_072,
        "cached_bytes": 0,
        "can_run": True,
    }
    assert table.loc[_PRESET, "cached_bytes"] >= hf.weights_bytes


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lama-3.1-8b", "did you mean llama-3.1-8b"),
        ("no such thing at all", "`tokenroof models` lists the presets"),
        ("./missing", "./missing: no such file or directory"),
        ("missing.gguf", "missing.gguf: no such file or directory"),
        (300 * "x", "x: cannot be looked for: File name too long"),
        (f"ollama:{300 * 'x'}", "x: cannot be looked for: File name too long"),
        ("~nobody-of-this-name/model", "cannot be looked for: Could not determine home directory"),
    ],
)
def test_an_unknown_model_is_told(spec: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        source.resolve(spec)
    assert message in str(error.value)


def test_a_directory_without_a_configuration_is_told(copy: Path) -> None:
    (copy / "config.json").unlink()
    with pytest.raises(UserError, match=r"no config\.json"):
        source.resolve(str(copy))


@pytest.mark.parametrize(("text", "message"), [("{", "not readable as JSON"), ("[]", "not a JSON object")])
def test_an_unreadable_configuration_is_told(copy: Path, text: str, message: str) -> None:
    (copy / "config.json").write_text(text)
    with pytest.raises(UserError, match=message):
        source.resolve(str(copy))


def test_a_configuration_without_a_key_is_told(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    del config["n_layer"]
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"config\.json: n_layer is missing"):
        source.resolve(str(copy))


def test_truncated_weights_are_told(copy: Path) -> None:
    (file,) = copy.glob("*.safetensors")
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1)
    with pytest.raises(UserError, match=f"{file.name}: truncated"):
        source.resolve(str(copy))


def test_a_shard_that_the_others_names_call_for_is_told(copy: Path) -> None:
    (file,) = copy.glob("*.safetensors")
    file.rename(copy / "model-00002-of-00003.safetensors")
    (copy / INDEX_NAME).unlink()
    with pytest.raises(
        UserError, match=r"missing model-00001-of-00003\.safetensors, model-00003-of-00003\.safetensors, "
    ):
        source.resolve(str(copy))


def _renamed_architecture(gguf: Artifact, path: Path) -> Path:
    content = gguf.path.read_bytes()
    path.write_bytes(content.replace(b"gpt2", b"own2"))
    return path


def test_a_gguf_of_an_unknown_architecture_is_told(gguf: Artifact, tmp_path: Path) -> None:
    path = _renamed_architecture(gguf, tmp_path / "own.gguf")
    with pytest.raises(UserError, match=r"own\.gguf: general\.architecture 'own2' is unknown; known are .*llama"):
        source.resolve(str(path))


@pytest.mark.parametrize("version", [1, 4])
def test_a_gguf_of_an_unknown_version_is_told(gguf: Artifact, tmp_path: Path, version: int) -> None:
    content = bytearray(gguf.path.read_bytes())
    content[4:8] = version.to_bytes(4, "little")
    (tmp_path / "other.gguf").write_bytes(content)
    with pytest.raises(UserError, match=rf"other\.gguf: GGUF version {version} is not supported, only 2 and 3"):
        source.resolve(str(tmp_path / "other.gguf"))


def test_no_weights_are_told(copy: Path) -> None:
    for file in copy.glob("*.safetensors*"):
        file.unlink()
    with pytest.raises(UserError, match=r"no \.safetensors file"):
        source.resolve(str(copy))


def test_a_gguf_is_for_llama_cpp_as_it_is(gguf: Artifact) -> None:
    model = source.resolve(str(gguf.path))
    for kind, weight_format in (("hf", None), ("gguf", "f16")):
        with pytest.raises(UserError, match=r"only llama\.cpp reads a \.gguf file"):
            artifacts.prepare(model, kind, weight_format)


def test_a_full_disk_is_told_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "none"))
    usage = namedtuple("usage", "free")(free=30_000_000_000)  # noqa: PYI024  # stands in for shutil's own
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    model = source.resolve("qwen3-8b")
    with pytest.raises(UserError, match=r"need 32\.8 GB of disk, .* has 30\.0 GB free"):
        artifacts.prepare(model, "gguf", "f32")
    assert not (tmp_path / "none").exists()


_KILLED_WRITER = """
import sys, time
from harness.models import artifacts, source

def stop(label, done, total):
    print(done, flush=True)
    time.sleep(600)

artifacts.prepare(source.resolve(sys.argv[1]), "hf", None, stop)
"""


def test_a_killed_writer_leaves_nothing_that_is_taken_for_a_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", _KILLED_WRITER, _PRESET], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()  # it is in the midst of writing
        writer.kill()
    model = source.resolve(_PRESET)
    assert cache.list_cached() == []
    assert artifacts.disk_needed(model, "hf", None) > 0
    artifact = artifacts.prepare(model, "hf", None)
    assert sum(entry.n_bytes for entry in tensor_table(artifact.path).values()) == 2 * _PARAMS
    assert [entry.path for entry in cache.list_cached()] == [artifact.path]


@pytest.mark.parametrize("name", ["../../../escaped", "org/name", "a\nb", "x" * 300, "モデル" * 60, ".."])
def test_whatever_a_model_is_called_its_file_is_one_of_the_cache(hf: Artifact, name: str) -> None:
    stem = artifacts.file_stem(replace(source.resolve(str(hf.path)), name=name))
    assert cache.artifact_path(stem).parent == cache.artifact_path("any").parent
    assert len(f"{stem}-q4_k_m-01234567.gguf-01234567.quality.json.partial.lock".encode()) < 256, "which systems allow"


def test_a_name_with_folders_in_it_leads_nowhere_else(copy: Path) -> None:
    called = replace(source.resolve(str(copy)), name="../../../escaped")
    made = artifacts.prepare(called, "gguf", "bf16")
    assert made.path in {cached.path for cached in cache.list_cached()}
