"""A run of a serving endpoint is a run like any other: dry, resumed, interrupted, limited in time, shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from reports.summary import summarise
from results.read import read

TOKENROOF = Path(sys.executable).with_name("tokenroof")


def test_no_cell_is_empty_without_a_reason(fake_server, bench):
    outcome = bench(fake_server().base_url, "--concurrency", "1,2")
    always = {"error", "verified_why", "verified_with", "ceiling_warning", "prompt_file", "suite"}
    always |= {"source", "derived", "comparable", "comparable_why"}
    for _, row in outcome.rows.iterrows():
        empty = {name for name, cell in row.items() if pd.isna(cell)} - always
        assert empty <= set(json.loads(row["unavailable"])), empty - set(json.loads(row["unavailable"]))


def test_the_table_shows_the_clients_ttft_as_such(fake_server, bench):
    outcome = bench(fake_server(ttft_s=0.25).base_url)
    assert outcome.ok["backend"] == "openai"
    assert "openai" in outcome.out
    assert outcome.ok.isna()["ttft_s"]
    milliseconds = f"{1e3 * outcome.row['ttft_client_s']:.1f}"
    assert milliseconds in outcome.out
    assert "queue" in outcome.out, "the footnote says what it holds"


def test_a_servers_latency_is_beside_its_ttft(fake_server, bench):
    row = bench(fake_server(ttft_s=0.25).base_url).ok
    # A request of one token takes the same 0.25 s; a GET takes next to nothing.
    assert row["server_latency_s"] == pytest.approx(0.25, abs=0.1)
    assert row["network_latency_s"] < 0.1
    assert row["ttft_client_s"] >= 0.25, "nothing is subtracted"


def test_a_dry_run_generates_nothing(fake_server, bench):
    served = fake_server()
    outcome = bench(served.base_url, "--dry-run", "--concurrency", "1,16")
    assert outcome.code == 0
    assert not served.requests()
    assert not outcome.output.exists()
    assert "16" in outcome.out


def test_resume_adds_what_is_missing(fake_server, bench):
    served = fake_server()
    bench(served.base_url, "-r", "2")
    before = len(served.requests())
    outcome = bench(served.base_url, "-r", "2", "--resume")
    assert outcome.code == 0
    assert len(served.timed(8, 1000)) <= before
    assert len(outcome.rows) == 2
    outcome = bench(served.base_url, "-r", "3", "--concurrency", "1,2", "--resume")
    assert outcome.rows.groupby("batch").size().to_dict() == {1: 3, 2: 3}
    assert not outcome.rows.duplicated(["batch", "launch", "repetition"]).any()
    assert outcome.rows["run_id"].nunique() == 1


def test_resume_repeats_what_failed(fake_server, bench):
    assert bench(fake_server(status=500).base_url).row["status"] == "failed"
    rows = bench(fake_server().base_url, "--resume").rows
    assert "ok" in rows["status"].tolist()


def test_max_time_ends_a_run_and_says_so(fake_server, bench):
    outcome = bench(fake_server(ttft_s=0.1).base_url, "-r", "200", "--max-time", "4")
    assert 0 < len(outcome.rows) < 200
    assert "--max-time is over; " in outcome.err


def test_a_max_time_that_is_too_short_is_told_as_such(fake_server, bench):
    outcome = bench(fake_server(ttft_s=1.0).base_url, "--max-time", "1")
    assert outcome.rows.empty
    assert "--max-time was over before anything was measured" in outcome.err


def test_ctrl_c_leaves_complete_rows(fake_server, tmp_path):
    output = tmp_path / "out.csv"
    base_url = fake_server(ttft_s=0.1, itl_s=0.02).base_url
    case = ["-m", "fake-model", "-p", "16", "-n", "16", "-r", "100", "--concurrency", "4", "-o", output]
    command = [TOKENROOF, "run", "--backend", "openai", "--base-url", base_url, *case]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env={**os.environ, "OPENAI_API_KEY": "x"}) as run:
        deadline = time.monotonic() + 60
        while not output.exists() or output.read_bytes().count(b"\n") <= 3:
            assert time.monotonic() < deadline
            assert run.poll() is None, run.communicate()
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=30)
    assert run.returncode == 130
    assert b"--resume" in errors
    assert b"Traceback" not in errors
    rows = read(output)
    assert len(rows) >= 3
    assert (rows["status"] == "ok").all()


def test_ctrl_c_ends_a_measurement_of_the_bandwidth_at_once(fake_server, tmp_path):
    """It blocks the event loop, which would hear of Ctrl-C only afterwards, and go on with the first case."""
    model = ["-m", "gpt2-mini", "-w", "bf16", "--artifact", "openai=fake-model", "-o", tmp_path / "out.csv"]
    command = [TOKENROOF, "run", "--backend", "openai", "--base-url", fake_server().base_url, *model, "-p", "16"]
    environment = {**os.environ, "TOKENROOF_CACHE": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as run:
        said = b""
        while b"bandwidth" not in said:
            line = run.stderr.readline()
            assert line, said
            said += line
        run.send_signal(signal.SIGINT)
        _, rest = run.communicate(timeout=60)
    assert run.returncode == 130
    assert b"before anything was measured" in rest
    assert b"warming up" not in rest
    assert b"Traceback" not in rest


def test_servers_and_arrivals_that_differ_are_lines_of_their_own(fake_server, bench):
    """All of them have the same case; their rates must not be averaged."""
    kind = {"owned_by": "vllm", "itl_s": 0.001}
    old, new = (fake_server(version=version, **kind).base_url for version in ("0.10.0", "0.11.0"))
    bench(old, "--concurrency", "2")
    bench(old, "--concurrency", "2", "--rate", "100")
    rows = bench(new, "--concurrency", "2")
    lines = summarise(read(rows.output))
    assert lines["n_ok"].tolist() == [1, 1, 1]
    assert lines["settings"].nunique() == 3


def test_ollama_is_known_by_its_version_where_a_user_owns_its_models(fake_server, bench):
    served = fake_server(owned_by="someone", ollama_version="0.12.6")
    assert bench(served.base_url).ok["backend_version"] == "Ollama 0.12.6"


def test_a_case_that_the_model_cannot_hold_is_refused_before_the_server_is_called(fake_server, bench):
    served = fake_server()
    outcome = bench(served.base_url, "-m", "gpt2-mini", "--artifact", "openai=fake-model", "-p", "400", "-n", "200")
    assert outcome.code == 2
    assert "gpt2-mini holds 256 tokens, but depth 0 + prompt 400 + generation 200 is 600; lower" in outcome.err
    assert not outcome.output.exists()
    assert not served.requests()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("-m", "gpt2-mini", "--artifact", "openai=fake-model"), "name it with -w"),
        (("-m", "fake-model"), "names no shape that is known here"),
        (("-m", "gpt2-mini", "--artifact", "openai=fake-model", "-w", "bf16"), None),
    ],
    ids=["no format", "no shape", "known"],
)
def test_why_there_is_no_ceiling_stands_below_the_table(fake_server, bench, flags, why):
    out = " ".join(bench(fake_server().base_url, "--on", "RTX 5090", *flags).out.split())
    assert out.count("openai: no ceiling: ") == bool(why)
    assert why is None or why in out
