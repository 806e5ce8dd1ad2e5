"""The address and the key: what is understood, what is refused, and what of it may be shown."""

from __future__ import annotations

import pytest

from harness.errors import UserError
from harness.serving.endpoint import endpoint


def test_a_password_is_sent_and_is_no_part_of_the_address():
    where = endpoint("https://me:pa%40ss@gpu.example:8443/v1/", "sk-1")
    assert where.base_url == "https://gpu.example:8443/v1"
    assert where.auth == ("me", "pa@ss")
    assert "pa@ss" not in repr(where)
    assert "sk-1" not in repr(where)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "http://localhost/v1", "http://[::1]:8080/v1"])
def test_this_machine_may_be_named(url):
    assert endpoint(url, None).is_local
    assert endpoint(url, None).shown == url


@pytest.mark.parametrize("url", ["http://192.0.2.7:8080/v1", "https://gpu.example/v1", "http://[2001:db8::1]:8080/v1"])
def test_another_machine_may_not(url):
    where = endpoint(url, None)
    assert not where.is_local
    assert not any(name in where.shown for name in ("192.0.2.7", "gpu.example", "2001:db8"))


def test_what_a_server_says_is_shown_without_secrets():
    where = endpoint("https://me:pa-ss@gpu.example/v1", "sk-secret")
    said = where.without_secrets("bad key sk-secret for pa-ss at gpu.example: some message")
    assert not any(secret in said for secret in ("sk-secret", "pa-ss", "gpu.example"))
    assert said.endswith(": some message"), "the user's name is a word like any other"


def test_a_password_is_hidden_in_the_form_in_which_it_was_sent_too():
    # printf 'me:pa-ss-word' | base64
    said = endpoint("http://me:pa-ss-word@127.0.0.1/v1", None).without_secrets(
        "no such login: Basic bWU6cGEtc3Mtd29yZA=="
    )
    assert "bWU6" not in said


def test_a_short_key_is_hidden_where_it_is_a_word():
    """Servers without keys are often given "none" or "x" for one."""
    where = endpoint("http://127.0.0.1:8080/v1", "none")
    assert where.without_secrets("bad key none: nonetheless") == "bad key …: nonetheless"


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://host/v1", "http://", "http://host:port/v1", "http://[::1"]
)
def test_what_is_no_address_is_refused_with_an_example(url):
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:8080/v1"):
        endpoint(url, None)


@pytest.mark.parametrize("key", ["sk-\n1", "ключ", "a\tb"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key):
    with pytest.raises(UserError) as error:
        endpoint("http://127.0.0.1/v1", key)
    assert key not in str(error.value)
