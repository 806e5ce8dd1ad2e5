"""A model over two tiers for real: a server on loopback, llama.cpp, and rows that say where every byte lay."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import harness
from harness import launch
from harness.errors import UserError
from harness.machine.bandwidth import measured as bandwidth
from harness.machine.bandwidth.measured import Device, load_cached, measured
from harness.machine.hardware import inspect
from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from harness.progress import Reporter
from harness.rows import Row
from results.read import read

pytestmark = pytest.mark.usefixtures("known_bandwidth")
LAYER = 2 * 12 * 384**2 + 4 * 13 * 384  # gpt2-mini in bf16: its matrices; norms and biases stay f32
HEAD = 2 * 50257 * 384 + 4 * 2 * 384
KV_LAYER = 2 * 384 * 2  # a token's keys and values, f16
RESOLUTION = 2**20 // 50  # of sums of sizes that llama.cpp logs in MiB with two decimals
EXPERTS = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
EXPERTS |= {"head_dim": 32, "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "intermediate_size": 64}
EXPERTS |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
EXPERT_LAYER = 2 * 8 * 3 * 64 * 128  # bytes of a layer's experts, all of them


class Recorder(Reporter):
    """Keeps notes; may act on a row."""

    def __init__(self, on_row: Callable[[Row], None] = lambda _: None) -> None:
        self.notes: list[str] = []
        self._on_row = on_row

    def note(self, text: str) -> None:
        self.notes.append(text)

    def row(self, row: Row) -> None:
        self._on_row(row)


def _plan(output: Path, **options: Any) -> harness.Plan:
    defaults = {
        "models": ("gpt2-mini",), "backends": ("llama.cpp",), "n_prompt": (8,), "n_gen": (4,), "launches": 1,
        "repetitions": 1, "n_threads": (1,), "output": output,
    }  # fmt: skip
    return harness.make_plan(harness.Options(**(defaults | options)))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bandwidths of 4 MiB, measured as fast as can be: the tests judge bytes, not speeds."""
    worker = bandwidth.Worker
    monkeypatch.setattr(bandwidth, "Worker", lambda job: worker({**job, "most_bytes": 2**22, "budget_s": 0}))


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers of eight experts."""
    directory = tmp_path_factory.mktemp("offload") / "mixture"
    synthesise(PRESETS["qwen3-30b-a3b"] | EXPERTS, directory)
    return directory


def _tiers(row: Any) -> list[dict[str, Any]]:
    tiers: list[dict[str, Any]] = json.loads(row.tiers)
    return tiers


def test_every_row_of_a_sweep_says_where_its_layers_and_bytes_lay(tmp_path: Path, tier: str) -> None:
    recorder = Recorder()
    rows = harness.run(_plan(tmp_path / "sweep.csv", rpc=tier, n_gpu_layers=(0, 1, 2, 4, 99, -1)), recorder)
    assert (rows["status"] == "ok").all(), rows["error"].tolist()
    assert rows["gpu_layers_effective"].tolist() == [0, 1, 2, 4, 4, 4]
    assert "-ngl 99 is more than the 4 layers of gpt2-mini, so all of them go to the GPU" in recorder.notes
    for row in rows.itertuples():
        on_device = row.gpu_layers_effective
        host, *devices = _tiers(row)
        layers = [3 - max(on_device - 1, 0), max(on_device - 1, 0)]
        assert [host["layers"], host["output"]] == [layers[0], on_device == 0]
        contexts = 8 + 9 + 10  # of the three timed steps
        read = [layers[0] * (LAYER + KV_LAYER * contexts / 3), layers[1] * (LAYER + KV_LAYER * contexts / 3)]
        read[1 if on_device else 0] += HEAD
        assert host["read_bytes"] == pytest.approx(read[0], abs=1)
        assert row.streamed_bytes_per_token + row.kv_read_bytes == pytest.approx(sum(read), abs=2)
        if not on_device:
            assert devices == []
            continue
        (device,) = devices
        assert device["memory"] == row.device
        assert [device["layers"], device["output"]] == [layers[1], True]
        assert device["weight_bytes"] == pytest.approx(layers[1] * LAYER + HEAD, abs=RESOLUTION)
        assert device["kv_bytes"] == pytest.approx(layers[1] * KV_LAYER * row.kv_allocated_tokens, abs=RESOLUTION)
        assert device["read_bytes"] == pytest.approx(read[1], abs=1)
        seconds = sum(
            each["read_bytes"] / 1e9 / each["bandwidth_measured_gbs"] for each in (host, device) if each["read_bytes"]
        )
        # One of the two may take longer to compute than to read, even where reading takes most of the time in all.
        assert 1 / row.decode_ceiling_tok_s >= 0.98 * seconds
        assert device["bandwidth_spec_gbs"] is None
        unavailable = json.loads(row.unavailable)
        assert unavailable["decode_ceiling_spec_tok_s"]


def test_a_kv_cache_and_experts_lie_where_they_were_asked_to(tmp_path: Path, tier: str, mixture: Path) -> None:
    asked = {"models": str(mixture), "rpc": tier, "n_prompt": 64, "n_cpu_moe": (0, 3), "kv_offload": (True, False)}
    rows = harness.run(_plan(tmp_path / "mixture.csv", **asked), Recorder())
    assert (rows["status"] == "ok").all(), rows["error"].tolist()
    settings = [json.loads(each)["asked"] for each in rows["engine_settings"]]
    assert [(each.get("n_cpu_moe", 0), each.get("kv_offload", True)) for each in settings] == [
        (0, True), (0, False), (3, True), (3, False),
    ]  # fmt: skip
    held = {
        (one.get("n_cpu_moe", 0), one.get("kv_offload", True)): _tiers(row)
        for one, row in zip(settings, rows.itertuples(), strict=True)
    }
    (_, together), (kv_host, kv_device) = held[0, True], held[0, False]
    assert kv_device["kv_bytes"] == 0
    assert kv_host["kv_bytes"] == pytest.approx(together["kv_bytes"], abs=RESOLUTION)
    moe_host, moe_device = held[3, True]
    assert together["weight_bytes"] - moe_device["weight_bytes"] == pytest.approx(3 * EXPERT_LAYER, abs=RESOLUTION)
    assert moe_host["read_bytes"] == 3 * EXPERT_LAYER / 4, "two of eight experts"
    assert kv_host["read_bytes"] == rows["kv_read_bytes"].iloc[0]
    assert held[3, False][0]["read_bytes"] == moe_host["read_bytes"] + kv_host["read_bytes"]
    assert len({sum(each["read_bytes"] for each in tiers) for tiers in held.values()}) == 1


@pytest.mark.parametrize("allow_partial", [False, True])
def test_layers_that_are_not_where_they_were_asked_to_be_cost_the_case(
    tmp_path: Path, tier: str, monkeypatch: pytest.MonkeyPatch, allow_partial: bool
) -> None:
    """The engine is really asked for less than the row says: what a build that ignores a request looks like."""
    plan = _plan(tmp_path / "partial.csv", rpc=tier, n_gpu_layers=3, allow_partial=allow_partial)
    asked = launch.request_of
    monkeypatch.setattr(launch, "request_of", lambda *work: asked(*work) | {"n_gpu_layers": 2})
    (row,) = harness.run(plan, Recorder()).itertuples()
    reason = "3 layers were to be off the host, the output layer counted as one, and by the sizes of its buffers 2 are"
    if allow_partial:
        assert row.status == "ok"
        assert row.gpu_layers_effective == 2
        assert json.loads(row.engine_settings)["not_honoured"].startswith(reason)
        assert reason in json.loads(row.unavailable)["mbu"]
        assert json.loads(row.engine_settings)["asked"]["allow_partial"] is True
    else:
        assert row.status == "failed"
        assert row.error.startswith(reason)
        assert "--allow-partial measures it all the same" in row.error


def test_a_tier_that_vanishes_costs_its_work_and_no_other(tmp_path: Path, serving: Any) -> None:
    with serving() as (endpoint, process):

        def vanish(row: Row) -> None:
            if row["status"] == "ok" and row["repetition"] == 2:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()

        cases = {"n_prompt": (8, 16, 24), "n_gen": (64,), "repetitions": 50, "launches": 2}
        recorder = Recorder(vanish)
        rows = harness.run(_plan(tmp_path / "gone.csv", rpc=endpoint, **cases), recorder)
    failed = rows[rows["status"] == "failed"]
    assert sorted(failed["n_prompt"]) == [8, 16, 24], "each case once, in the first launch"
    assert failed["error"].str.startswith(f"the tier at {endpoint} no longer answers: start it again").all()
    assert not any("use_extra_bufts" in note for note in recorder.notes), "nothing is wrong with the engine"
    assert 2 <= len(rows[rows["status"] == "ok"]) < 50

    # Without the tier nothing is started at all.
    with pytest.raises(UserError, match=f"--rpc {endpoint}: no tier answers at {endpoint}"):
        _plan(tmp_path / "gone.csv", rpc=endpoint, resume=True)


def test_a_tier_that_is_gone_when_a_work_starts_costs_that_work_fast(tmp_path: Path, serving: Any) -> None:
    with serving() as (endpoint, _):
        plan = _plan(tmp_path / "gone.csv", rpc=endpoint, n_gpu_layers=(2, -1), launches=3)
    rows = harness.run(plan, Recorder())
    assert rows["status"].tolist() == ["failed", "failed"]
    assert rows["error"].str.startswith(f"no tier answers at {endpoint}").all()


def test_another_machines_memory_is_measured_anew_each_time(
    tmp_path: Path, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path))
    machine = inspect()
    device = Device("RPC device 0", "RPC0", "llama.cpp", (tier,))
    first, second = (measured(machine, device, lambda *_: None) for _ in range(2))
    assert first != second
    assert load_cached(machine, device.name) is None
    assert {point.working_set_bytes for point in first.curve.points} == {2**20, 2**21, 2**22}
    assert all(1e7 < point.best_bytes_s < 1e13 for point in first.curve.points)
    assert set(first.matrix) | set(first.unavailable) == {"f32", "f16", "bf16"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rpc", "127.0.0.1"], "'127.0.0.1' is no endpoint: write HOST:PORT"),
        (["--backend", "torch", "--rpc", "127.0.0.1:1"], "only llama.cpp places part of a model (--rpc)"),
        (["-ts", "3/x"], "-ts 3/x: '3/x' is no split"),
        (["-ts", "0/0"], "-ts 0/0: '0/0' is no split"),
        (["-sm", "column"], "-sm column: 'column' is none of layer, none, row"),
        (["-nkvo", "yes"], "-nkvo yes: 'yes' is none of 0, 1"),
        (["-ncmoe", "-1"], "-ncmoe"),
        (["-ncmoe", "2"], "and the model has none"),
    ],
)
def test_what_cannot_be_asked_is_one_line(flags: list[str], message: str, command: Callable[..., Any]) -> None:
    result = command("run", "-m", "gpt2-mini", "--backend", "llama.cpp", "-p", "8", "-n", "4", *flags)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_flags_of_llama_bench_are_understood(tmp_path: Path, tier: str, command: Callable[..., Any]) -> None:
    output = tmp_path / "flags.csv"
    case = ["-p", "8", "-n", "4", "-t", "1", "-r", "1", "--launches", "1", "-o", output]
    placing = ["-ngl", "2", "-nkvo", "0,1", "-sm", "layer", "-ts", "1", "--rpc", tier]
    result = command("run", "-m", "gpt2-mini", "--backend", "llama.cpp", *case, *placing)
    assert result.returncode == 0, result.stderr
    asked = [json.loads(each)["asked"] for each in read(output)["engine_settings"]]
    assert [each.get("kv_offload", True) for each in asked] == [True, False]
    assert {tuple(each["rpc"]) for each in asked} == {(tier,)}
    assert {tuple(each["tensor_split"]) for each in asked} == {(1.0,)}
