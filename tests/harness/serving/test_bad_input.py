"""Every way in which a server fails costs its case one row with one clear line, and nothing hangs."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trustme

from harness.cli.main import main

# Longer than any of these may take: --timeout is 5 s, and connections are retried within it.
HUNG_S = 60


@pytest.fixture(autouse=True)
def _nothing_hangs():
    began = time.monotonic()
    yield
    assert time.monotonic() - began < HUNG_S


FAULTS = {
    "out of order for ever": ({"status": 429, "retry_after": "0"}, "429"),
    "wants a pause of an hour": ({"status": 429, "retry_after": "3600"}, "429.*3600"),
    "internal error": ({"status": 500, "error_message": "CUDA error: out of memory"}, "500.*CUDA error: out of memory"),
    "overloaded": ({"status": 503}, "503"),
    "forbidden": ({"status": 403}, "403"),
    "stalls before the first token": ({"fault": "stall", "fault_after_chunks": 0}, "silent|stall|no token|nothing"),
    "stalls mid-stream": ({"fault": "stall"}, "silent|stall|nothing"),
    "breaks off": ({"fault": "break"}, "br(oke|eaks) off|closed"),
    "breaks off before the first token": ({"fault": "break", "fault_after_chunks": 0}, "br(oke|eaks) off|closed"),
    "sends what is no JSON": ({"fault": "malformed"}, "JSON|malformed"),
    "sends what is no event": ({"fault": "not_sse"}, "broke off"),
    "reports an error in the stream": ({"fault": "error_event"}, "out of memory"),
    "ignores stream": ({"ignores_stream": True}, "stream"),
    "serves other models": ({"models": ["alpha", "beta"]}, "fake-model.*alpha.*beta"),
    "has a small context": ({"context_tokens": 12}, "context"),
}


@pytest.mark.parametrize(("behaviour", "words"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_server_costs_a_row_that_says_why(fake_server, bench, behaviour, words):
    error = bench(fake_server(**behaviour).base_url, "--timeout", "2").error
    assert re.search(words, error), error


@pytest.mark.parametrize("fault", ["stall", "break", "malformed"])
def test_a_fault_costs_its_repetition_and_what_was_measured_stays(fake_server, bench, fault):
    """The warm-up and two repetitions go well."""
    served = fake_server(fault=fault, faulty_from_tokens=8, healthy_first=3)
    outcome = bench(served.base_url, "-r", "9", "--timeout", "2")
    assert outcome.rows["status"].tolist() == ["ok", "ok", "failed"]
    assert outcome.code == 1


def test_nothing_listens(bench):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    error = bench(url).error
    assert "nothing listens" in error
    assert url.split("/")[2] in error


def test_what_fails_before_the_first_case_is_one_line_and_a_row_for_each(fake_server, bench):
    """Nobody listening, and a name that the server does not have: three cases each, and nothing was asked."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    reasons = {
        nobody: "nothing listens there; start the server",
        fake_server(models=["alpha"]).base_url: "it serves alpha",
    }
    for number, (url, reason) in enumerate(reasons.items()):
        outcome = bench(url, "--concurrency", "1,2,4", output=f"{number}.csv")
        assert outcome.code == 1
        assert outcome.rows["status"].tolist() == ["failed"] * 3
        (line,) = [line for line in outcome.err.splitlines() if reason in line]
        assert line.startswith("note: nothing of fake-model could be measured (3 cases failed): http")
        assert outcome.out == f"rows in {outcome.output}\n", "no table of nothing"


def test_a_server_that_dies_between_cases_costs_those_that_follow(fake_server, bench):
    served = fake_server(fault="break", faulty_from_tokens=9, healthy_first=0)
    outcome = bench(served.base_url, "-n", "8,12")
    assert outcome.code == 1
    assert outcome.rows.set_index("n_gen")["status"].to_dict() == {8: "ok", 12: "failed"}
    assert "p16 n12 d0 failed: http" in outcome.err


@pytest.mark.parametrize("host", ["no-such-host.invalid", f"{'a' * 70}.invalid", "a..invalid"])
def test_a_host_that_does_not_exist(bench, host):
    assert host not in bench(f"http://{host}/v1").error


def test_something_listens_and_never_answers(bench):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = bench(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "--timeout", "2").error
    assert "2 s" in error


def test_a_wrong_path_is_a_404_that_names_it(fake_server, bench):
    served = fake_server()
    error = bench(f"{served.root}/api").error
    assert "404" in error
    assert "/v1" in error


@pytest.mark.parametrize("key", [[], ["--api-key", "sk-wrong"]])
def test_a_refused_key(fake_server, bench, key):
    error = bench(fake_server(api_key="sk-right").base_url, *key).error
    assert "401" in error
    assert "--api-key" in error
    assert "sk-" not in error


def test_a_certificate_that_nobody_vouches_for(bench, tmp_path):
    certificate = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    script = Path(__file__).parents[2] / "serving" / "fake_server.py"
    command = [sys.executable, script, "--certificate", certificate]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            port = int(server.stdout.readline())
            assert "certificate" in bench(f"https://127.0.0.1:{port}/b0/v1").error
        finally:
            server.kill()


def test_tls_where_none_is_spoken(fake_server, bench):
    error = bench(fake_server().base_url.replace("http:", "https:")).error
    assert "TLS" in error


@pytest.mark.parametrize("behaviour", [{"status": 429, "retry_after": "1"}, {"status": 503}], ids=["429", "503"])
def test_a_server_that_recovers_is_asked_again(fake_server, bench, behaviour):
    served = fake_server(failing=2, faulty_from_tokens=8, healthy_first=1, **behaviour)
    row = bench(served.base_url).ok
    assert row["ttft_client_s"] < 0.5, "a refused attempt is no part of the time to the first token"
    refused = [each["arrived_ns"] / 1e9 for each in served.requests() if each.get("status")]
    assert len(refused) == 2
    if "retry_after" in behaviour:
        assert refused[1] - refused[0] >= 1, "Retry-After is kept"


def test_retries_are_bounded_and_never_follow_a_token(fake_server, bench):
    served = fake_server(status=500)
    bench(served.base_url)
    assert len(served.requests()) <= 16
    served = fake_server(fault="break")
    bench(served.base_url, "-n", "12")
    assert len([each for each in served.requests() if each.get("n_tokens") == 12]) == 1


MISTAKES = {
    "no address": ([], "--base-url"),
    "another engine beside it": (["--base-url", "http://127.0.0.1:1/v1", "--backend", "openai,torch"], "torch"),
    "no URL": (["--base-url", "127.0.0.1"], "http"),
    "another scheme": (["--base-url", "ftp://127.0.0.1/v1"], "http"),
    "no concurrency": (["--base-url", "http://127.0.0.1:1/v1", "--concurrency", "0"], "too small"),
    "no rate": (["--base-url", "http://127.0.0.1:1/v1", "--rate", "0"], "--rate"),
}


@pytest.mark.parametrize(("flags", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_request_is_refused_in_one_line(monkeypatch, capsys, tmp_path, flags, words):
    output = tmp_path / "out.csv"
    monkeypatch.setattr(sys, "argv", ["tokenroof", "run", "--backend", "openai", *flags, "-m", "m", "-o", str(output)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not output.exists()
