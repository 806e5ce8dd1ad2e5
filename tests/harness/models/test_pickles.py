"""Weights in pickle files, and models that want their own code run, are refused in words."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

import backends.torch
from backends.base import LoadRequest
from harness.errors import UserError
from harness.models import sizes, source
from harness.roofline.families import FAMILIES


@pytest.fixture
def pickled(tiny_hf: Path, tmp_path: Path) -> Path:
    directory = Path(shutil.copytree(tiny_hf, tmp_path / "tiny"))
    torch.save(load_file(directory / "model.safetensors"), directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    return directory


def test_a_pickle_is_refused_with_the_reason_and_what_to_do(pickled: Path) -> None:
    for spec in (pickled, pickled / "pytorch_model.bin"):
        with pytest.raises(UserError) as error:
            source.resolve(str(spec))
        assert "pytorch_model.bin, which may run any code while it is read" in str(error.value)
        assert "save_pretrained(NEW_DIRECTORY)" in str(error.value)


def test_what_it_says_to_do_makes_a_model_that_can_run(pickled: Path, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(pickled).save_pretrained(tmp_path / "new")
    assert sizes.n_params(source.resolve(str(tmp_path / "new"))) == 426_624


def test_its_shape_will_do_for_a_prediction(pickled: Path) -> None:
    assert source.resolve_shape(str(pickled)).architecture.n_layers == 2


def test_a_pickle_beside_safetensors_is_let_be(tiny_hf: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny_hf, tmp_path / "tiny"))
    (directory / "training_args.bin").write_bytes(b"a pickle")
    assert source.resolve(str(directory)).origin == "hf"


_AUTO_MAP = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnModel"}


def _with_config(tiny_hf: Path, tmp_path: Path, **changes: object) -> Path:
    directory = Path(shutil.copytree(tiny_hf, tmp_path / "own"))
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": _AUTO_MAP} | changes))
    (directory / "configuration_own.py").write_text("raise SystemExit('run')")
    (directory / "modeling_own.py").write_text("raise SystemExit('run')")
    return directory


def test_code_of_the_models_own_is_never_run(tiny_hf: Path, tmp_path: Path) -> None:
    directory = _with_config(tiny_hf, tmp_path, model_type="own")
    with pytest.raises(UserError, match=r"Python code of its own \(auto_map\), which is never run; .*'own'"):
        source.resolve(str(directory))


def test_a_family_of_ours_needs_no_such_code(tiny_hf: Path, tmp_path: Path) -> None:
    directory = _with_config(tiny_hf, tmp_path)
    assert source.resolve(str(directory)).architecture.model_type == "llama"
    with closing(backends.torch.load(LoadRequest(directory, "f32", device="cpu"))) as session:
        assert session.vocab_size == 512


def test_transformers_has_code_for_every_family_whose_bytes_are_known() -> None:
    """So that code of a model's own could never lead to a row, and there is no flag that would run it."""
    assert FAMILIES.keys() - CONFIG_MAPPING_NAMES.keys() == set()


def test_whoever_allowed_it_is_told_why_a_file_is_not_read_all_the_same(pickled: Path) -> None:
    weights = pickled / "pytorch_model.bin"
    with pytest.raises(UserError, match=r"is for a model directory's pytorch_model\.bin"):
        source.resolve(str(weights), allow_pickle=True)
    weights.rename(pickled / "model.pt")
    with pytest.raises(UserError, match=r"model\.pt is not read: --allow-unsafe-pickle is for"):
        source.resolve(str(pickled), allow_pickle=True)
    (pickled / "model.pt").unlink()
    weights.symlink_to(pickled / "nowhere.bin")
    with pytest.raises(UserError, match="a regular file"):
        source.resolve(str(pickled), allow_pickle=True)
