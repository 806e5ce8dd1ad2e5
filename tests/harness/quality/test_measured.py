"""The quality of a model that was trained, in the three engines, beside numbers from the engines' own libraries."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
import transformers

import harness
from backends.base import Accelerator
from harness.models import cache
from harness.models.artifacts import prepare
from harness.models.gguf_export import export
from harness.process import Worker
from harness.progress import Reporter
from harness.quality.measured import cost, quality_cells
from harness.quantise.artifact import path_of

pytestmark = pytest.mark.usefixtures("known_bandwidth")
KV_FORMATS = {"torch": "fp8", "mlx": "8bit", "llama.cpp": "q4_0"}

Rows = dict[tuple[str, str], pd.Series]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks of the workers that were started."""
    tasks: list[str] = []
    enter = Worker.__enter__

    def noting(self: Worker) -> Worker:
        tasks.append(self._job["task"])
        return enter(self)

    monkeypatch.setattr(Worker, "__enter__", noting)
    return tasks


def _plan(model: Path, folder: Path, backend: str, **options: object) -> harness.Plan:
    case = {"n_prompt": 8, "n_gen": 2, "launches": 1, "repetitions": 1, "n_threads": 1, "device": "cpu"}
    asked = {"models": str(model), "backends": backend, "output": folder / f"{backend}.csv"}
    return harness.make_plan(harness.Options(**(asked | case | options)))


def _run(*asked: object, **options: object) -> pd.DataFrame:
    rows = harness.run(_plan(*asked, **options), Reporter())
    assert (rows["status"] == "ok").all(), rows["error"].dropna().tolist()
    return rows


@pytest.fixture(scope="module")
def rows(trained: Path, model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    """Two engines' formats, by engine and format."""
    folder = tmp_path_factory.mktemp("quality")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROOF_CACHE", str(model_cache))
        of_engines = [
            _run(trained, folder, "llama.cpp", weights=("q8_0", "q4_0")),
            _run(trained, folder, "mlx", weights=("8bit", "4bit")),
        ]
        yield {(row["backend"], row["weight_format"]): row for found in of_engines for _, row in found.iterrows()}


def _expected(unquantised: np.ndarray, quantised: np.ndarray) -> tuple[float, float]:
    """By torch's own divergence."""
    p, q = (torch.log_softmax(torch.from_numpy(logits).double(), -1) for logits in (unquantised, quantised))
    kl = torch.nn.functional.kl_div(q, p, log_target=True, reduction="none").sum(-1).mean()
    return float(kl), float((p.argmax(-1) == q.argmax(-1)).double().mean())


def _probe() -> np.ndarray:
    """The 512 ids of the probe, from Philox by hand."""
    bits = np.random.Philox(key=np.array([0x70726F6265, 0], dtype=np.uint64)).random_raw(512)
    return (bits % np.uint64(512)).astype(np.int64)


_SCORE = """
import sys, llama_cpp, numpy
default = llama_cpp.llama_cpp.llama_model_default_params
def params():
    found = default()
    found.use_extra_bufts = False  # repacked weights crash it on some CPUs
    return found
llama_cpp.llama_cpp.llama_model_default_params = params
model = llama_cpp.Llama(sys.argv[1], n_ctx=512, n_batch=512, logits_all=True, n_threads=1, verbose=False)
model.eval(numpy.load(sys.argv[2]).tolist())
numpy.save(sys.argv[3], model.scores[448:512])
"""


def _by_llama_cpp(path: Path, folder: Path) -> np.ndarray:
    """Logits of the probe by llama-cpp-python's own class, in a process without torch, which would crash it."""
    ids, logits = folder / "ids.npy", folder / "logits.npy"
    np.save(ids, _probe())
    subprocess.run([sys.executable, "-c", _SCORE, path, ids, logits], check=True, timeout=120)
    return np.load(logits)


def test_llama_cpps_own_class_finds_the_same(rows: Rows, model_cache: Path, tmp_path: Path) -> None:
    models = model_cache / "models"
    (original,) = models.glob("counter-*-bf16.gguf")
    reference = _by_llama_cpp(original, tmp_path)
    for form in ("q8_0", "q4_0"):
        (copy,) = models.glob(f"counter-*-{form}-*.gguf")
        kl, top1 = _expected(reference, _by_llama_cpp(copy, tmp_path))
        row = rows["llama.cpp", form]
        # It takes all 512 tokens at once, where the probe's last 64 come by themselves: other sums are rounded.
        assert row["quality_kl"] == pytest.approx(kl, rel=0.05, abs=3e-4)
        assert row["quality_top1"] == pytest.approx(top1, abs=2.5 / 64), "a near tie may fall otherwise"


def test_transformers_finds_as_much_of_weights_rounded_as_mlx_does(rows: Rows, trained: Path) -> None:
    """Groups of 64 of a row in 4 bits, from the lowest to the highest number: MLX's affine format, done by hand."""
    tokens = torch.from_numpy(_probe())[None]
    with torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_pretrained(trained, dtype=torch.bfloat16)
        reference = model(tokens).logits[0, 448:].float().numpy()
        for form, bits in (("8bit", 8), ("4bit", 4)):
            coarse = transformers.AutoModelForCausalLM.from_pretrained(trained, dtype=torch.float32)
            for weight in coarse.parameters():
                if weight.ndim == 2:
                    groups = weight.view(-1, 64)
                    low, high = groups.min(1, keepdim=True).values, groups.max(1, keepdim=True).values
                    step = (high - low) / (2**bits - 1)
                    groups.copy_(torch.round((groups - low) / step) * step + low)
            kl, top1 = _expected(reference, coarse.bfloat16()(tokens).logits[0, 448:].float().numpy())
            row = rows["mlx", form]
            # MLX puts its grid so that zero is on it, and both compute in bf16: as much, not the same number.
            assert kl / 2.5 < row["quality_kl"] < 2.5 * kl
            assert row["quality_top1"] == pytest.approx(top1, abs=0.2)


def test_a_gguf_files_quality_is_that_of_its_directory(rows: Rows, trained: Path, tmp_path: Path) -> None:
    export(trained, tmp_path / "counter.gguf", "bf16")
    (row,) = _run(tmp_path / "counter.gguf", tmp_path, "llama.cpp", weights="q4_0").to_dict("records")
    from_directory = rows["llama.cpp", "q4_0"]
    for column in ("quality_kl", "quality_top1", "weight_bits", "weight_bytes"):
        assert row[column] == from_directory[column], column


@pytest.mark.parametrize(("backend", "many", "few"), [("llama.cpp", "q8_0", "q4_0"), ("mlx", "8bit", "4bit")])
def test_fewer_bits_lose_more(rows: Rows, backend: str, many: str, few: str) -> None:
    assert 0 <= rows[backend, many]["quality_kl"] < rows[backend, few]["quality_kl"] / 10
    assert rows[backend, many]["quality_top1"] >= rows[backend, few]["quality_top1"]
    assert rows[backend, few]["weight_bits"] < 6 < rows[backend, many]["weight_bits"]
    reasons = json.loads(rows[backend, few]["unavailable"])
    assert not {"quality_kl", "quality_top1"} & set(reasons)
    assert reasons["kv_quality_kl"] == reasons["kv_quality_top1"] == "the KV cache is not quantised"


def test_it_is_kept_beside_the_weights(rows: Rows, trained: Path, tmp_path: Path, started: list[str]) -> None:
    new, known = (_plan(trained, tmp_path, "llama.cpp", weights=form) for form in ("q5_0", "q4_0"))
    assert cost(new.works[0]).seconds > 0 == cost(known.works[0]).seconds
    assert new.memory_bytes > known.memory_bytes, "the unquantised model is loaded no more"
    (row,) = harness.run(known, Reporter()).to_dict("records")
    assert row["quality_kl"] == rows["llama.cpp", "q4_0"]["quality_kl"]
    assert "quality" not in started
    notes = list((cache.directory() / "models").glob("*.quality.json"))
    assert notes
    assert not {each.path for each in cache.list_cached()} & set(notes), "no model"
    (work,) = known.works
    for other in (
        replace(work, engine=replace(work.engine, build="another")),
        replace(work, engine=replace(work.engine, accelerators=(Accelerator("gpu:0", "Another", 2**40),))),
    ):
        on_it = replace(other, settings=replace(other.settings, device="gpu"))
        assert cost(on_it).seconds > 0, "another build, or device, rounds otherwise"
    note = cache.quality_note(path_of(work), "cpu")
    text = note.read_text(encoding="utf-8")
    for damaged in ("", "{}", '{"kl": 0.1', "[]"):
        note.write_text(damaged, encoding="utf-8")
        assert cost(work).seconds > 0, "it is measured again"
    note.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("backend", KV_FORMATS)
def test_a_quantised_cache_tells_what_the_answers_lose(
    backend: str, trained: Path, tmp_path: Path, started: list[str]
) -> None:
    form = KV_FORMATS[backend]
    launches = 2 if backend == "llama.cpp" else 1
    rows = _run(trained, tmp_path, backend, kv_k_format=form, kv_v_format=form, launches=launches)
    assert len(rows) == launches
    assert started.count("quality") == 1, "for all launches"
    row = rows.iloc[-1]
    assert (row["kv_k_format"], row["kv_v_format"], row["weights_origin"]) == (form, form, "trained")
    assert 0 < row["kv_quality_kl"] < 0.5, "fewer bits change the answers, a little"
    assert 0.5 < row["kv_quality_top1"] <= 1
    reasons = json.loads(row["unavailable"])
    assert not {"kv_quality_kl", "kv_quality_top1"} & set(reasons)
    assert reasons["quality_kl"] == reasons["quality_top1"] == "the weights are not quantised"
    assert pd.isna(row["quality_kl"])


def test_an_original_that_does_not_fit_costs_its_two_cells(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    plan = _plan(trained, tmp_path, "llama.cpp", weights="q5_0")
    free = psutil.virtual_memory()._replace(available=cost(plan.works[0]).memory_bytes - 1)
    monkeypatch.setattr("harness.limits.psutil.virtual_memory", lambda: free)
    (row,) = harness.run(plan, Reporter()).to_dict("records")
    assert row["status"] == "ok"
    assert pd.isna(row["quality_kl"])
    reason = json.loads(row["unavailable"])["quality_kl"]
    assert reason.startswith("not compared with unquantised answers: counter bf16 on llama.cpp -t 1 needs about 5")
    assert "quality" not in started


def test_an_engine_that_dies_over_it_costs_its_two_cells(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work,) = _plan(trained, tmp_path, "llama.cpp", kv_k_format="q8_0").works
    artifact = prepare(work.source, "gguf", "bf16")
    enter = Worker.__enter__

    def killed(self: Worker) -> Worker:
        worker = enter(self)
        psutil.Process(worker.pid).kill()
        return worker

    monkeypatch.setattr(Worker, "__enter__", killed)
    cells = quality_cells(work, artifact, 60, Reporter().preparing)
    assert cells.values == {}
    assert cells.missing["kv_quality_kl"].startswith("not compared with unquantised answers: killed (SIGKILL)")
    assert cells.missing["quality_kl"] == "the weights are not quantised"
