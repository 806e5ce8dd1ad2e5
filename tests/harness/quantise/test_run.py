"""Quantised copies for real: made by llama.cpp and by MLX in workers of their own, run, kept, and killed."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

import harness
from harness.errors import UserError
from harness.models import cache
from harness.models.synthesis import SYNTHETIC_KEY
from harness.process import Worker
from harness.progress import Reporter
from harness.quantise.artifact import path_of, quantised, to_write

pytestmark = pytest.mark.usefixtures("known_bandwidth")
TOKENROOF = Path(sys.executable).with_name("tokenroof")
PARAMETERS = 426_624
MATRICES, VECTORS = 425_984, 640  # 512 x 128 twice, two layers of 147 456; norms
TABLE = 512 * 128  # the input embedding, which a step only looks up
LAYERS, ROWS = MATRICES - 2 * TABLE, 2 * (128 + 64 + 64 + 128 + 256 + 256 + 128)
# The 128 numbers of most rows are half a block of Q4_K; as llama.cpp's rule has it then: the LM head in Q8_0, and
# values of the second layer too; down projections have rows of 256.
Q4_K_M = {
    "Q8_0": (TABLE + 64 * 128) * 34 // 32,
    "Q5_0": (TABLE + 2 * (128 + 64 + 128 + 2 * 256) * 128 + 64 * 128) * 22 // 32,
    "Q4_K": 256 * 128 * 144 // 256,
    "Q6_K": 256 * 128 * 210 // 256,
    "F32": VECTORS * 4,
}


class Labels(Reporter):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def preparing(self, label: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        self.seen.append(label)


def _plan(model: Path, output: Path, **options: object) -> harness.Plan:
    case = {"n_prompt": 16, "n_gen": 4, "launches": 1, "repetitions": 1, "device": "cpu", "output": output}
    return harness.make_plan(harness.Options(models=str(model), **(case | options)))


@pytest.fixture(scope="module")
def rows(tiny_hf: Path, model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    model = tmp_path_factory.mktemp("random") / tiny_hf.name
    shutil.copytree(tiny_hf, model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    # Its weights are random in truth; that said, nobody asks what quantising costs: tests/harness/quality does.
    (model / "config.json").write_text(json.dumps(config | {SYNTHETIC_KEY: 1}), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROOF_CACHE", str(model_cache))
        output = tmp_path_factory.mktemp("quantised") / "out.csv"
        plan = _plan(model, output, backends=("torch", "mlx", "llama.cpp"), weights=("bf16", "8bit", "4bit"))
        labels = Labels()
        found = harness.run(plan, labels)
        assert "quantising tiny-llama to q4_k_m for llama.cpp" in labels.seen
        assert "quantising tiny-llama to 4bit for mlx" in labels.seen
        assert plan.disk_bytes == 0, "all that the plan needs is there now"
        again = Labels()
        harness.run(_plan(model, output, backends="llama.cpp", weights="4bit", repetitions=2, resume=True), again)
        assert not again.seen, "it was kept"
    return found.set_index(["backend", "weight_format"])


def test_each_engine_ran_its_usual_formats(rows: pd.DataFrame) -> None:
    assert (rows["status"] == "ok").all(), rows["error"].dropna().tolist()
    wanted = {("mlx", "8bit"), ("mlx", "4bit"), ("llama.cpp", "q8_0"), ("llama.cpp", "q4_k_m")}
    wanted |= {("torch", "int8"), ("torch", "int4")}
    assert set(rows.index) == wanted | {("torch", "bf16"), ("mlx", "bf16"), ("llama.cpp", "bf16")}


@pytest.mark.parametrize(
    ("backend", "weight_format", "n_bytes", "table_bytes"),
    [
        ("torch", "bf16", 2 * PARAMETERS, 2 * TABLE),
        # Embeddings and norms stay. To a row a scale of four bytes, a zero point of one; to 128 numbers both in bf16.
        ("torch", "int8", LAYERS + 5 * ROWS + 2 * (2 * TABLE + VECTORS), 2 * TABLE),
        ("torch", "int4", LAYERS // 2 + LAYERS // 128 * 4 + 2 * (2 * TABLE + VECTORS), 2 * TABLE),
        ("mlx", "bf16", 2 * PARAMETERS, 2 * TABLE),
        ("mlx", "8bit", MATRICES * 68 // 64 + 2 * VECTORS, TABLE * 68 // 64),
        ("mlx", "4bit", MATRICES * 36 // 64 + 2 * VECTORS, TABLE * 36 // 64),
        ("llama.cpp", "q8_0", MATRICES * 34 // 32 + 4 * VECTORS, TABLE * 34 // 32),
        ("llama.cpp", "q4_k_m", sum(Q4_K_M.values()), TABLE * 22 // 32),
    ],
)
def test_bytes_and_bits_are_a_pencils(
    rows: pd.DataFrame, backend: str, weight_format: str, n_bytes: int, table_bytes: int
) -> None:
    row = rows.loc[(backend, weight_format)]
    assert row["n_params"] == PARAMETERS
    assert row["weight_bytes"] == n_bytes
    assert row["weight_bits"] == pytest.approx(8 * n_bytes / PARAMETERS)
    assert row["streamed_bytes_per_token"] == n_bytes - table_bytes
    assert 0 < row["mbu"] < 1


def test_a_row_tells_the_types_that_the_format_is_made_of(rows: pd.DataFrame) -> None:
    settings = rows["engine_settings"].map(json.loads)
    assert settings["llama.cpp", "q4_k_m"]["weight_types"] == Q4_K_M
    assert sum(settings["mlx", "4bit"]["weight_types"].values()) == rows.loc[("mlx", "4bit"), "weight_bytes"]
    assert "weight_types" not in settings["mlx", "bf16"]
    assert settings["torch", "int4"]["weight_types"] == {
        "bfloat16": 2 * (2 * TABLE + VECTORS) + LAYERS // 128 * 4,
        "uint8": LAYERS // 2,
    }


def test_formats_are_other_work_and_no_reason_for_doubt(rows: pd.DataFrame) -> None:
    assert rows["weights_id"].nunique() == 7, "the three bf16 rows share theirs"
    assert set(rows.xs("bf16", level="weight_format")["verified"]) == {"yes"}
    others = rows.drop(index="bf16", level="weight_format")
    assert others["verified"].isna().all()
    assert others["verified_why"].str.contains("each engine quantises in its own way").all()


def test_a_quantiser_that_is_killed_leaves_nothing(
    tiny_hf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "cache"))
    (work,) = _plan(tiny_hf, tmp_path / "out.csv", backends="llama.cpp", weights="q6_k").works
    assert list(to_write(work)) == [path_of(work)]
    started = Worker.__enter__

    def killed(self: Worker) -> Worker:
        worker = started(self)
        psutil.Process(worker.pid).kill()
        return worker

    monkeypatch.setattr(Worker, "__enter__", killed)
    with pytest.raises(UserError, match=r"quantising tiny-llama to q6_k for llama.cpp ended early: killed \(SIGKILL\)"):
        quantised(work, 60, lambda *_: None)
    assert not path_of(work).exists()
    assert [each.path.suffix for each in cache.list_cached()] == [".gguf"], "the export is whole, and stays"
    monkeypatch.setattr(Worker, "__enter__", started)
    artifact = quantised(work, 60, lambda *_: None)
    assert artifact.path == path_of(work)
    assert to_write(work) == {}


def test_a_run_that_is_killed_meanwhile_leaves_no_half_file_and_no_worker(tmp_path: Path, model_cache: Path) -> None:
    environment = {"TOKENROOF_CACHE": str(model_cache), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    asked = [
        "-m",
        "gpt2-mini",
        "-w",
        "iq4_nl",
        "--backend",
        "llama.cpp",
        "-p",
        "4",
        "-n",
        "2",
        "-o",
        tmp_path / "o.csv",
    ]
    models = model_cache / "models"
    command = [TOKENROOF, "run", *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as run:
        deadline = time.monotonic() + 120
        while not list(models.glob("*-iq4_nl-*.partial")):
            assert time.monotonic() < deadline
            assert run.poll() is None, run.communicate()
            time.sleep(0.005)
        workers = psutil.Process(run.pid).children()
        run.kill()
    psutil.wait_procs(workers, timeout=30)
    assert not any(worker.is_running() for worker in workers)
    assert not [path for path in models.glob("*-iq4_nl-*") if path.suffix not in (".partial", ".lock")]
