"""The name of weights: every byte counts, is read once, and no artifact of other weights is taken for theirs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from harness.errors import UserError
from harness.models import artifacts, cache, digest, sizes, source
from harness.models.artifact_weights import gguf_header, hf_tensors
from harness.models.gguf_export import export
from harness.models.hf_config import read_config
from harness.models.weights_id import expected_id, weights_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.models.source import ModelSource

WHOLE = "model.safetensors"
GATE = "model.layers.1.mlp.gate_proj.weight"
_minutes = count(1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def model(tiny_hf: Path, tmp_path: Path) -> ModelSource:
    return source.resolve(str(shutil.copytree(tiny_hf, tmp_path / "tiny")))


@pytest.fixture(scope="module")
def both(tiny_hf: Path, tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSource]:
    own = tmp_path_factory.mktemp("own")
    directory, file = shutil.copytree(tiny_hf, own / "tiny"), shutil.copy(tiny_gguf, own)
    return {"hf": source.resolve(str(directory)), "gguf": source.resolve(str(file))}


def _file(model: ModelSource) -> Path:
    assert model.path is not None
    return model.path / WHOLE if model.path.is_dir() else model.path


def _touch(path: Path) -> None:
    """Later than ever before, for a clock's ticks may be longer than a test."""
    later = path.stat().st_mtime_ns + 60_000_000_000 * next(_minutes)
    os.utime(path, ns=(later, later))


def _flip(path: Path, place: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))
    _touch(path)


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process begins."""
    monkeypatch.setattr(digest, "_known", {})


def _reports(model: ModelSource) -> list[tuple[str, int, int]]:
    reports: list[tuple[str, int, int]] = []
    weights_id(model, lambda *report: reports.append(report))
    return reports


@pytest.mark.parametrize("kind", ["hf", "gguf"])
@given(data=st.data())
def test_one_bit_anywhere_is_another_id(both: dict[str, ModelSource], kind: str, data: st.DataObject) -> None:
    model = both[kind]
    assert model.path is not None
    tensors = hf_tensors(model.path).values() if kind == "hf" else gguf_header(model.path).tensors
    tensor = data.draw(st.sampled_from(list(tensors)))
    place = tensor.offset + data.draw(st.integers(0, tensor.n_bytes - 1))
    bit = data.draw(st.integers(0, 7))
    before = weights_id(model)
    _flip(tensor.path, place, bit)
    assert weights_id(model) != before
    _flip(tensor.path, place, bit)
    assert weights_id(model) == before


def test_what_is_read_once_is_known_until_a_file_changes(model: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    file, n_bytes = _file(model), sizes.weight_bytes(model, "bf16")
    name = weights_id(model)
    _forget(monkeypatch)
    seen = file.stat()
    _flip(file, seen.st_size // 2, 0)
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert weights_id(model) == name, "nobody can know without reading it"
    _touch(file)
    assert _reports(model)[-1] == ("hashing tiny", n_bytes, n_bytes)
    assert weights_id(model) != name
    assert _reports(model) == []
    _flip(file, seen.st_size // 2, 0)
    assert weights_id(model) == name, "touched, and the same"


def test_the_same_tensors_in_other_files_have_the_same_id(model: ModelSource, tmp_path: Path) -> None:
    assert model.path is not None
    name, tensors = weights_id(model), load_file(_file(model))
    directory = Path(shutil.copytree(model.path, tmp_path / "sharded"))
    (directory / WHOLE).unlink()
    for number in (1, 2):
        part = {key: tensors[key] for key in sorted(tensors, reverse=True)[number - 1 :: 2]}
        save_file(part, directory / f"model-0000{number}-of-00002.safetensors")
    assert weights_id(source.resolve(str(directory))) == name


def test_settings_count_too(tiny_hf: Path, model: ModelSource, tmp_path: Path) -> None:
    assert model.path is not None
    config = read_config(model.path)
    config["rope_parameters"]["rope_theta"] = 5e5
    (model.path / "config.json").write_text(json.dumps(config))
    assert weights_id(source.resolve(str(model.path))) != weights_id(source.resolve(str(tiny_hf)))
    for directory, name in ((model.path, "a"), (tiny_hf, "b")):
        export(directory, tmp_path / f"{name}.gguf", "bf16")
    a, b = (source.resolve(str(tmp_path / f"{name}.gguf")) for name in "ab")
    assert weights_id(a) != weights_id(b)


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:-20], lambda _: "", lambda text: "é" + text, lambda text: text.translate({48: "1", 97: "b"})],
    ids=["cut", "empty", "foreign", "digits"],
)
def test_a_damaged_memory_is_read_over(
    model: ModelSource, monkeypatch: pytest.MonkeyPatch, damage: Callable[[str], str]
) -> None:
    name = weights_id(model)
    (note,) = (each for each in (cache.directory() / "digests").iterdir() if each.suffix != ".lock")
    note.write_text(damage(note.read_text()), encoding="utf-8")
    _forget(monkeypatch)
    assert expected_id(model) != name
    assert weights_id(model) == name
    _forget(monkeypatch)
    assert expected_id(model) == name, "it was mended"


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    model: ModelSource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = weights_id(model)
    _forget(monkeypatch)
    (tmp_path / "file").touch()
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "file" / "cache"))
    assert weights_id(model) == name
    assert _reports(model) == [], "this process knows it still"


def test_two_processes_at_once(model: ModelSource) -> None:
    code = (
        "import sys; from harness.models import source; from harness.models.weights_id import weights_id; "
        "model = source.resolve(sys.argv[1]); print('ready', flush=True); input(); print(weights_id(model))"
    )
    command, pipe = [sys.executable, "-c", code, str(model.path)], subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    told = {process.communicate()[0].strip() for process in processes}
    assert told == {expected_id(model)}, "what they remember is whole"


def test_a_file_that_changes_meanwhile_has_no_id(model: ModelSource) -> None:
    def copying(_label: str, done: int, total: int) -> None:
        if done == total:
            _touch(_file(model))

    with pytest.raises(UserError, match="tiny: its files changed while they were read; run again"):
        weights_id(model, copying)

    def cut(_label: str, _done: int, _total: int) -> None:
        _file(model).unlink(missing_ok=True)

    with pytest.raises(UserError, match=rf"{WHOLE}: cannot be read: No such file"):
        weights_id(model, cut)


def test_the_export_of_other_weights_is_not_taken_for_theirs(model: ModelSource) -> None:
    """As a fine-tuned model that is copied over the one it came from."""
    first = artifacts.prepare(model, "gguf", "bf16")
    assert artifacts.disk_needed(model, "gguf", "bf16") == 0
    tensors = load_file(_file(model))
    tensors[GATE][100:140] += 1
    save_file(tensors, _file(model), metadata={"format": "pt"})
    _touch(_file(model))
    assert artifacts.disk_needed(model, "gguf", "bf16") == sizes.weight_bytes(model, "bf16")
    second = artifacts.prepare(model, "gguf", "bf16")
    assert second.weights_id != first.weights_id
    (written,) = (each for each in gguf.GGUFReader(second.path).tensors if each.name == "blk.1.ffn_gate.weight")
    assert torch.equal(torch.from_numpy(written.data.copy()).view(torch.bfloat16), tensors[GATE])
    assert first.path.exists()


def test_a_dry_run_reads_no_weights(model: ModelSource, command: Callable[..., Any]) -> None:
    asked = ["run", "-m", str(model.path), "--backend", "llama.cpp", "--device", "cpu", "--dry-run"]
    plan = command(*asked)
    assert plan.returncode == 0, plan.stderr
    assert "853 kB of disk for models" in plan.stdout  # of 426 624 parameters
    assert not (cache.directory() / "digests").exists()
    artifacts.prepare(model, "gguf", "bf16")
    assert ", 0 B of disk for models" in command(*asked).stdout
