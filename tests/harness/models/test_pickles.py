"""Weights in pickle files, and models that want their own code run, are refused in words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from harness.errors import UserError
from harness.models import source


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
    assert source.n_params(source.resolve(str(tmp_path / "new"))) == 426_624


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
    assert source.resolve(str(_with_config(tiny_hf, tmp_path))).architecture.model_type == "llama"
