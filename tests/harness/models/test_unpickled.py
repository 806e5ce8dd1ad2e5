"""Weights that are pickled alone: refused unasked, read without running what is in them, and the same work as ever."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from backends.base import BackendError
from backends.torch.unpickle import unpickle
from harness.errors import UserError
from harness.models import cache, sizes, source
from harness.models.pickles import ALLOW, INDEX_NAME
from harness.models.weights_id import weights_id
from harness.process import Worker
from results.read import read
from results.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

PARAMS = 426_624
WHOLE = "pytorch_model.bin"
BOTH = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "before torch 1.6"])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def weights(tiny_hf: Path) -> dict[str, torch.Tensor]:
    return load_file(tiny_hf / "model.safetensors")


@pytest.fixture
def directory(tiny_hf: Path, tmp_path: Path) -> Path:
    """A model's, without its weights."""
    copy = Path(shutil.copytree(tiny_hf, tmp_path / "tiny"))
    (copy / "model.safetensors").unlink()
    return copy


@pytest.fixture
def pickled(directory: Path, weights: dict[str, torch.Tensor]) -> Path:
    torch.save(weights, directory / WHOLE)
    return directory


def _resolved(directory: Path) -> source.ModelSource:
    return source.resolve(str(directory), allow_pickle=True)


def _refusal(directory: Path) -> str:
    """What a person reads; and nothing is left in the cache."""
    with pytest.raises(UserError) as error:
        _resolved(directory)
    assert "\n" not in str(error.value)
    assert cache.list_cached() == []
    return str(error.value)


def _written(model: source.ModelSource) -> dict[str, torch.Tensor]:
    assert model.path is not None
    files = sorted(model.path.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def _same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return got.keys() == expected.keys() and all(
        got[name].dtype == expected[name].dtype and torch.equal(got[name], expected[name]) for name in expected
    )


@BOTH
def test_its_tensors_are_kept_once_as_safetensors(
    directory: Path,
    tiny_hf: Path,
    weights: dict[str, torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
    is_zip: bool,
) -> None:
    torch.save(weights, directory / WHOLE, _use_new_zipfile_serialization=is_zip)
    model = _resolved(directory)
    assert (model.name, model.origin, model.unpickled, sizes.n_params(model)) == ("tiny", "hf", True, PARAMS)
    assert _same(_written(model), weights)
    assert weights_id(model) == weights_id(source.resolve(str(tiny_hf))), "rows of either meet"
    assert [each.path for each in cache.list_cached()] == [model.path]
    monkeypatch.delattr(Worker, "__enter__")
    assert _resolved(directory) == model, "without another process"


def test_whoever_asks_is_told_what_is_done(pickled: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    source.resolve(str(pickled), allow_pickle=True, progress=lambda *report: reports.append(report))
    assert list(dict.fromkeys(label for label, _, _ in reports)) == ["hashing tiny", "writing tiny as safetensors"]
    assert all(0 <= done <= total for _, done, total in reports)


@BOTH
def test_another_pickle_is_another_copy(directory: Path, weights: dict[str, torch.Tensor], is_zip: bool) -> None:
    torch.save(weights, directory / WHOLE, _use_new_zipfile_serialization=is_zip)
    first = _resolved(directory)
    weights["model.norm.weight"] = weights["model.norm.weight"] + 1
    torch.save(weights, directory / WHOLE, _use_new_zipfile_serialization=is_zip)
    second = _resolved(directory)
    assert second.path != first.path
    assert _same(_written(second), weights)


class _Runs:
    """Pickled as a call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._call


def _spoilt(weights: dict[str, torch.Tensor], call: _Runs) -> dict[str, Any]:
    return {**weights, "model.extra": call}


@BOTH
@pytest.mark.parametrize(
    ("function", "code", "name"),
    [(os.system, "touch {}", f"{os.name}.system"), (eval, "open({!r}, 'w')", "eval")],
)
def test_what_a_pickle_would_run_is_not_run(
    weights: dict[str, torch.Tensor],
    tmp_path: Path,
    function: Callable[[str], object],
    code: str,
    name: str,
    is_zip: bool,
) -> None:
    trace, file = tmp_path / "was-here", tmp_path / WHOLE
    spoilt = _spoilt(weights, _Runs(function, code.format(str(trace))))
    torch.save(spoilt, file, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(BackendError) as error:
        unpickle([file], tmp_path / "new")
    assert str(error.value).startswith(f"{WHOLE} asks for {name}, which is no tensor and is never called; get the mode")
    assert not trace.exists()
    torch.load(file, weights_only=False)
    assert trace.exists(), "it would have"


def test_whoever_asked_for_it_is_told_and_nothing_is_kept(
    directory: Path, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    trace = tmp_path / "was-here"
    torch.save(_spoilt(weights, _Runs(os.system, f"touch {trace}")), directory / WHOLE)
    assert _refusal(directory).startswith(f"{directory}: {WHOLE} asks for {os.name}.system, which is no tensor")
    assert not trace.exists()


def test_a_whole_model_is_no_table_of_tensors(tmp_path: Path, tiny_hf: Path) -> None:
    torch.save(transformers.AutoModelForCausalLM.from_pretrained(tiny_hf), tmp_path / WHOLE)
    with pytest.raises(BackendError, match=r"asks for transformers\.models\.llama\.modeling_llama\.LlamaForCausalLM"):
        unpickle([tmp_path / WHOLE], tmp_path / "new")


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, {1: torch.zeros(2)}, torch.zeros(2)])
def test_other_contents_are_told(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / WHOLE)
    with pytest.raises(BackendError, match=rf"{WHOLE}: no table of tensors by name, as transformers saves it"):
        unpickle([tmp_path / WHOLE], tmp_path / "new")


@BOTH
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_told(
    weights: dict[str, torch.Tensor],
    tmp_path: Path,
    share: float,
    is_zip: bool,
) -> None:
    file = tmp_path / WHOLE
    torch.save(weights, file, _use_new_zipfile_serialization=is_zip)
    os.truncate(file, int(share * file.stat().st_size))
    with pytest.raises(BackendError, match=rf"^{WHOLE} .*damaged.*") as error:
        unpickle([file], tmp_path / "new")
    assert ". " not in str(error.value), "torch has advice for its own users"


@pytest.fixture
def sharded(directory: Path, weights: dict[str, torch.Tensor]) -> Path:
    """Three files and their index, as transformers wrote them before it wrote safetensors."""
    names, weight_map = list(weights), {}
    for number in range(3):
        file = f"pytorch_model-0000{number + 1}-of-00003.bin"
        torch.save({name: weights[name] for name in names[number::3]}, directory / file)
        weight_map |= dict.fromkeys(names[number::3], file)
    (directory / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory


def test_shards_are_read_by_their_index(sharded: Path, weights: dict[str, torch.Tensor]) -> None:
    (sharded / "optimizer.bin").write_bytes(b"a pickle that no index names")
    model = _resolved(sharded)
    assert _same(_written(model), weights)
    assert model.path is not None
    assert not (model.path / INDEX_NAME).exists(), "it would name files that are not there"


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "pytorch_model-00002-of-00003.bin").unlink()
    assert f"{sharded}: missing pytorch_model-00002-of-00003.bin, which {INDEX_NAME} names" in _refusal(sharded)
    (sharded / INDEX_NAME).write_text("{")
    assert f"{INDEX_NAME}: not a readable index" in _refusal(sharded)


def test_of_a_tied_matrix_the_embedding_is_kept(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text()) | {"tie_word_embeddings": True}
    (directory / "config.json").write_text(json.dumps(config))
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(directory))
    state = model.state_dict()
    assert state["lm_head.weight"].data_ptr() == state["model.embed_tokens.weight"].data_ptr()
    torch.save(state, directory / WHOLE)
    found = _resolved(directory)
    assert set(_written(found)) == set(state) - {"lm_head.weight"}
    assert sizes.n_params(found) == model.num_parameters()
    again = transformers.AutoModelForCausalLM.from_pretrained(found.path)
    ids = torch.arange(8)[None]
    with torch.inference_mode():
        assert torch.equal(again(ids).logits, model(ids).logits)


def test_parts_of_one_storage_become_tensors_of_their_own(
    tmp_path: Path, directory: Path, weights: dict[str, torch.Tensor]
) -> None:
    fused = torch.cat([tensor.flatten() for tensor in weights.values()])
    parts = fused.split([tensor.numel() for tensor in weights.values()])
    views = {name: part.view(weights[name].shape) for name, part in zip(weights, parts, strict=True)}
    name = "model.layers.0.self_attn.q_proj.weight"
    views[name] = weights[name].t().contiguous().t()  # not in the order of its rows
    torch.save(views, directory / WHOLE)
    unpickle([directory / WHOLE], tmp_path / "new")
    assert _same(load_file(tmp_path / "new" / "model.safetensors"), weights)


@pytest.mark.parametrize("name", ["consolidated.00.pth", "model.pt", "pytorch_model.fp16.bin"])
def test_names_that_transformers_does_not_know_stay_refused(
    directory: Path, weights: dict[str, torch.Tensor], name: str
) -> None:
    torch.save(weights, directory / name)
    said = _refusal(directory)
    assert f"{name} is not read: {ALLOW} is for a model directory's {WHOLE}" in said


@pytest.mark.usefixtures("known_bandwidth")
def test_every_engine_runs_it_as_any_directory(
    pickled: Path, command: Callable[..., Any], tmp_path: Path, model_cache: Path
) -> None:
    output = tmp_path / "rows.csv"
    asked = ["run", "-m", pickled, "--backend", "torch,mlx,llama.cpp", "--device", "cpu", "-t", "1"]
    asked += ["-p", "8", "-n", "4", "-r", "1", "--launches", "1", "-o", output]
    refused = command(*asked)
    assert refused.returncode == 2
    assert ALLOW in refused.stderr
    done = command(*asked, ALLOW, TOKENROOF_CACHE=str(model_cache))
    assert done.returncode == 0, done.stderr
    assert "writing tiny as safetensors, " in done.stderr
    rows = verify(read(output))
    assert sorted(rows["backend"]) == ["llama.cpp", "mlx", "torch"]
    assert set(rows["model"]) == {"tiny"}
    assert set(rows["verified"]) == {"yes"}
    assert rows["weights_id"].nunique() == 1
    assert [json.loads(cell)["unpickled"] for cell in rows["engine_settings"]] == [True] * 3


def test_inspect_says_why_it_cannot(pickled: Path, command: Callable[..., Any]) -> None:
    told = command("inspect", pickled)
    assert told.returncode == 2
    assert f"the weights are in a pickle file, {WHOLE}" in told.stderr


def test_an_artifact_of_one_engine_may_be_pickled(pickled: Path, command: Callable[..., Any]) -> None:
    asked = ["run", "-m", "tiny", "--artifact", f"torch={pickled}", "--dry-run"]
    refused = command(*asked)
    assert refused.stderr.startswith(f"tokenroof: --artifact torch={pickled}: {pickled}: the weights are in a pickle")
    assert command(*asked, ALLOW).returncode == 0
