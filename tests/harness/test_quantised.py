"""A quantised .gguf through llama.cpp, for real: written by llama.cpp's own quantiser, and run as it is."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import harness
from harness.models import artifacts, source
from harness.progress import Reporter

pytestmark = pytest.mark.usefixtures("known_bandwidth")

# The quantiser prints, and a crash of it should cost this test alone.
_QUANTISE = """
import ctypes, sys, llama_cpp
params = llama_cpp.llama_model_quantize_default_params()
params.ftype, params.nthread = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, 1
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)))
"""


class Notes(Reporter):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture(scope="module")
def q8_0(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROOF_CACHE", str(model_cache))
        exported = artifacts.prepare(source.resolve("gpt2-mini"), "gguf", "bf16").path
    path = tmp_path_factory.mktemp("quantised") / "mini-q8_0.gguf"
    subprocess.run([sys.executable, "-c", _QUANTISE, exported, path], check=True, capture_output=True, timeout=120)
    return path


def test_quantised_weights_run_at_every_batch(q8_0: Path, tmp_path: Path) -> None:
    options = harness.Options(
        models=str(q8_0), backends="llama.cpp", n_prompt=16, n_gen=8, batch=(1, 2), launches=1, repetitions=2,
        device="cpu", output=tmp_path / "out.csv",
    )  # fmt: skip
    notes = Notes()
    rows = harness.run(harness.make_plan(options), notes)
    assert (rows["status"] == "ok").all(), rows["error"].dropna().tolist()
    assert rows.groupby("batch").size().to_dict() == {1: 2, 2: 2}
    assert set(rows["model"]) == {"mini-q8_0"}
    assert set(rows["weight_format"]) == {"q8_0"}
    assert set(rows["weights_origin"]) == {"synthetic"}
    # 34 bytes for 32 elements; norms, biases and positions stay f32, and they are few.
    parameters = 24_721_152
    assert set(rows["n_params"]) == {parameters}
    assert parameters * 34 / 32 < rows["weight_bytes"].iloc[0] < parameters * 34 / 32 * 1.02
    _check_fallback(rows, crashed=any("use_extra_bufts" in text for text in notes.texts))


def _check_fallback(rows: pd.DataFrame, *, crashed: bool) -> None:
    """On some CPUs a quantised model crashes llama.cpp, at the probe or later; the rest then runs without."""
    settings = rows["engine_settings"].map(json.loads)
    used = settings.map(lambda each: each["use_extra_bufts"]).tolist()
    assert used == sorted(used, reverse=True), "as usual, and after a crash never again"
    assert crashed == (False in used)
    assert rows["launch"].nunique() == len(set(used))
