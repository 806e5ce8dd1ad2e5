"""What a row may say of an endpoint, and whether somebody answers there."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tiers.endpoints import answers, is_loopback, shown, without_hosts


@pytest.mark.parametrize(
    ("endpoint", "loopback"),
    [
        ("127.0.0.1:50052", True),
        ("127.1.2.3:1", True),
        ("localhost:50052", True),
        ("LOCALHOST:50052", True),
        ("192.168.1.20:50052", False),
        ("0.0.0.0:50052", False),
        ("spark.local:50052", False),
        ("localhost.example.org:50052", False),
    ],
)
def test_only_this_machine_may_be_named(endpoint: str, loopback: bool) -> None:
    assert is_loopback(endpoint) == loopback
    assert shown(endpoint) == (endpoint if loopback else f"HOST:{endpoint.rpartition(':')[2]}")


@given(st.from_regex(r"[a-z]{3,12}\.(local|lan)", fullmatch=True), st.integers(1, 65535), st.text("abc :", max_size=20))
def test_no_host_is_left_in_a_text(host: str, port: int, text: str) -> None:
    endpoint = f"{host}:{port}"
    cleaned = without_hosts(f"{text}{endpoint}{text} at {endpoint}", [endpoint])
    assert host not in cleaned
    assert cleaned.count(f"HOST:{port}") == 2


def test_somebody_answers_or_nobody_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert answers(f"127.0.0.1:{port}")
    assert not answers(f"127.0.0.1:{port}")
    assert not answers("no endpoint")
