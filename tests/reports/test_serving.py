"""What is said of a server's users, from rows whose rates are known."""

from collections.abc import Callable
from typing import Any

import pytest

from reports.gather import Gathered
from reports.serving import users_text
from reports.words import words

Users = Callable[..., str]


@pytest.fixture
def said(make_row: Callable[..., dict[str, Any]], gathered: Callable[..., Gathered]) -> Users:
    """The sentence on rows of one server: `(streams, tok/s of each, tok/s of all)`, None for all where unknown."""

    def say(*measured: tuple[int, float, float | None]) -> str:
        rows = [
            make_row(backend="openai", batch=streams, request_tok_s=each, decode_tok_s=together)
            for streams, each, together in measured
        ]
        return users_text(gathered(*rows).own, words("en"))

    return say


def test_users_are_free_while_each_keeps_nine_tenths(said: Users) -> None:
    text = said((1, 40.0, 40.0), (2, 38.0, 76.0), (4, 36.4, 146.0))
    assert "free up to the 4 streams that were tried: each still decodes at 91 % of the 40.00 tok/s with 1" in text


def test_beyond_that_they_share(said: Users) -> None:
    text = said((1, 40.0, 40.0), (2, 38.0, 76.0), (4, 20.0, 80.0))
    assert "free up to 2 streams at once, each at 95 % of the 40.00 tok/s" in text
    assert "with 4 each decodes at 20.00 tok/s" in text


@pytest.mark.parametrize("streams", [2, 4])
def test_a_server_that_lets_requests_wait_is_not_free(said: Users, streams: int) -> None:
    """One after the other, each decodes as fast as alone: nobody shares, everybody waits."""
    text = said((1, 40.0, 40.0), (streams, 41.0, None), (8, 40.0, None))
    assert f"with {streams} streams at once requests waited for each other" in text
    assert "free" not in text


def test_one_number_of_streams_says_nothing(said: Users) -> None:
    assert not said((4, 40.0, 160.0))
