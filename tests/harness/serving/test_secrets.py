"""Keys and passwords, and the names of other people's machines, end in the request and nowhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from harness.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sk-very-secret-0123456789"


def _everything_written(directory: Path) -> str:
    assert any(directory.rglob("*.csv"))
    return "".join(path.read_bytes().decode("latin-1") for path in directory.rglob("*") if path.is_file())


def test_a_key_is_sent_and_never_kept(fake_server, bench, monkeypatch, tmp_path, capsys):
    served = fake_server(api_key=KEY)
    outcome = bench(served.base_url, "--api-key", KEY)
    assert outcome.ok["n_gen"] == 8
    assert {request["authorization"] for request in served.requests()} == {f"Bearer {KEY}"}
    report = tmp_path / "report"
    monkeypatch.setattr(sys, "argv", ["tokenroof", "report", str(outcome.output), "-o", str(report)])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    assert report.exists()
    assert KEY not in _everything_written(tmp_path) + outcome.out + outcome.err + printed.out + printed.err


def test_a_key_of_the_environment_that_the_server_echoes(fake_server, bench, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    served = fake_server(api_key=KEY, status=500, error_message=f"bad key {KEY}", faulty_from_tokens=8)
    outcome = bench(served.base_url)
    assert "bad key" in outcome.error
    assert {request["authorization"] for request in served.requests()} == {f"Bearer {KEY}"}
    assert KEY not in _everything_written(tmp_path) + outcome.out + outcome.err


def test_a_server_that_echoes_a_wrong_key_does_not_get_it_into_the_row(fake_server, bench, tmp_path):
    """OpenAI's own error quotes it."""
    outcome = bench(fake_server(api_key="another").base_url, "--api-key", KEY)
    assert "401" in outcome.error
    assert KEY not in _everything_written(tmp_path) + outcome.out + outcome.err


def test_a_password_in_the_address_is_not_kept(fake_server, bench, tmp_path):
    address = fake_server(status=500).base_url.replace("http://", "http://user:pass-word@")
    outcome = bench(address)
    assert outcome.row["status"] == "failed"
    assert "pass-word" not in _everything_written(tmp_path) + outcome.out + outcome.err


def test_another_machines_name_is_not_kept(bench, tmp_path):
    outcome = bench("http://no-such-host.invalid/v1")
    assert outcome.row["status"] == "failed"
    assert "no-such-host" not in _everything_written(tmp_path)


def test_a_server_on_loopback_is_not_asked_through_a_proxy(fake_server, bench, monkeypatch):
    """It would be timed too."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    bench(fake_server().base_url).ok  # noqa: B018
