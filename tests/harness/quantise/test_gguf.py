"""-w of a .gguf file that is not quantised yet: llama.cpp's own quantiser reads it, and its copy is kept and run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import gguf
import pandas as pd
import pytest

import harness
from harness.errors import UserError
from harness.progress import Reporter
from harness.quantise.artifact import path_of

pytestmark = pytest.mark.usefixtures("known_bandwidth")

# In a process of its own, since it prints.
_QUANTISE = """
import ctypes, sys, llama_cpp
params = llama_cpp.llama_model_quantize_default_params()
params.ftype, params.nthread = getattr(llama_cpp, sys.argv[3]), 1
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)))
"""


def _by_llama_cpp(original: Path, target: Path, file_type: str) -> Path:
    command = [sys.executable, "-c", _QUANTISE, original, target, f"LLAMA_FTYPE_MOSTLY_{file_type}"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


def _plan(model: Path, output: Path, **options: object) -> harness.Plan:
    case = {"n_prompt": 8, "n_gen": 2, "launches": 1, "repetitions": 1, "n_threads": 1, "device": "cpu"}
    asked = {"models": str(model), "backends": "llama.cpp", "output": output}
    return harness.make_plan(harness.Options(**(asked | case | options)))


def _tensor_bytes(path: Path) -> int:
    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)


def test_a_file_is_run_as_it_is_and_quantised(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_cache: Path
) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "bandwidth").symlink_to(model_cache / "bandwidth")
    plan = _plan(tiny_gguf, tmp_path / "out.csv", weights=("f16", "8bit", "q4_k_m"))
    assert [work.settings.weights for work in plan.works] == [None, "q8_0", "q4_k_m"]
    expected = {name: _by_llama_cpp(tiny_gguf, tmp_path / f"{name}.gguf", name.upper()) for name in ("q8_0", "q4_k_m")}
    assert plan.disk_bytes == sum(map(_tensor_bytes, expected.values())), "the file itself is not copied"

    rows = harness.run(plan, Reporter()).set_index("weight_format")
    assert (rows["status"] == "ok").all(), rows["error"].dropna().tolist()
    assert sorted(rows.index) == ["f16", "q4_k_m", "q8_0"]
    assert set(rows["model"]) == {"tiny-llama-f16"}
    assert rows["weights_id"].nunique() == 3
    for name, copy in [(work.settings.weights, path_of(work)) for work in plan.works if work.has_quantised_copy]:
        assert copy.read_bytes() == expected[name].read_bytes()
        assert rows.loc[name, "weight_bytes"] == _tensor_bytes(expected[name])
        assert rows.loc[name, "quality_kl"] > 0
    assert pd.isna(rows.loc["f16", "quality_kl"])
    assert json.loads(rows.loc["f16", "unavailable"])["quality_kl"] == "the weights are not quantised"
    assert plan.disk_bytes == 0, "they are kept"


def test_a_file_that_is_quantised_already_stays_so(tiny_gguf: Path, tmp_path: Path) -> None:
    q8_0 = _by_llama_cpp(tiny_gguf, tmp_path / "q8_0.gguf", "Q8_0")
    why = re.escape("the file is quantised already (Q8_0), and -w cannot convert it; leave -w out")
    for weights in ("q4_k_m", "8bit", "bf16"):
        with pytest.raises(UserError, match=f"^llama.cpp, q8_0: {why}$"):
            _plan(q8_0, tmp_path / "out.csv", weights=weights)
    assert [work.settings.weights for work in _plan(q8_0, tmp_path / "out.csv").works] == [None]


def test_plain_numbers_are_not_made_other_plain_numbers(tiny_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the file is f16, and is run so or quantised .*, but not made bf16$"):
        _plan(tiny_gguf, tmp_path / "out.csv", weights="bf16")
