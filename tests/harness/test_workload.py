import contextlib
import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.workload import Case, grid, parse_ints, sha256, text_stream, token_stream


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("512", (512,)),
        ("512,1024", (512, 1024)),
        ("0-8192+4096", (0, 4096, 8192)),
        ("512-4096*2", (512, 1024, 2048, 4096)),
        ("1-3", (1, 2, 3)),
        ("7,1-3,7", (7, 1, 2, 3)),
        ("5-8+2", (5, 7)),
    ],
)
def test_lists_are_llama_benchs(text: str, values: tuple[int, ...]) -> None:
    assert parse_ints(text, flag="-p") == values


def test_minus_one_is_a_number_of_layers() -> None:
    assert parse_ints("-1,0,99", flag="-ngl", least=-1) == (-1, 0, 99)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1,", ",1", "1.5", "1-", "5-1", "1-9+0", "1-9*1", "3-3*1", "0-9*2", "1--3", "-1", "0-999999999", "1 2"],
)
def test_what_is_no_list_is_refused_with_its_flag(text: str) -> None:
    with pytest.raises(UserError, match=r"^-p "):
        parse_ints(text, flag="-p")


@given(st.text(max_size=20))
def test_any_text_is_a_list_or_a_users_mistake(text: str) -> None:
    with contextlib.suppress(UserError):
        values = parse_ints(text, flag="-p")
        assert values
        assert min(values) >= 0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9))
def test_a_range_is_pythons_range(first: int, more: int, step: int) -> None:
    last = first + more
    assert parse_ints(f"{first}-{last}+{step}", flag="-d") == tuple(range(first, last + 1, step))


def test_the_grid_is_every_combination_without_the_empty_case() -> None:
    cases = grid([0, 4096], [0, 512], [0, 128], [1])
    assert cases == (
        Case(0, 0, 128),
        Case(0, 512, 0),
        Case(0, 512, 128),
        Case(4096, 0, 128),
        Case(4096, 512, 0),
        Case(4096, 512, 128),
    )
    with pytest.raises(UserError, match="nothing to measure"):
        grid([0], [0], [0], [1])


def test_decode_start_and_steps_follow_the_design() -> None:
    # llama-bench's "-d 512 -n 128" equals our "-d 0 -p 512 -n 128": the same context at the first timed step.
    assert Case(512, 0, 128).decode_start == Case(0, 512, 128).decode_start == 512
    assert Case(0, 512, 128).n_steps == 127, "the prefill yields the first token"
    assert Case(512, 0, 128).n_steps == 128, "decode only: N tokens over N intervals"
    assert Case(0, 512, 0).n_steps == 0
    assert str(Case(0, 512, 128, 4)) == "p512 n128 d0 B4"


@given(st.integers(1, 200), st.integers(1, 4), st.integers(2, 200_000), st.integers(0, 2**63))
def test_a_longer_stream_begins_with_the_shorter(n_tokens: int, batch: int, vocab: int, seed: int) -> None:
    longer = token_stream(n_tokens + 7, batch + 1, vocab, seed)
    assert np.array_equal(longer[:batch, :n_tokens], token_stream(n_tokens, batch, vocab, seed))
    assert longer.min() >= 0
    assert longer.max() < vocab


def test_sequences_and_seeds_differ() -> None:
    stream = token_stream(256, 2, 50_000, 1)
    assert not np.array_equal(stream[0], stream[1])
    assert not np.array_equal(stream[0], token_stream(256, 1, 50_000, 2)[0])


def test_the_stream_is_philoxs_published_one() -> None:
    # Random123's own known-answer vector for Philox4x64-10: counter 0, key 0. numpy counts up before it draws, so its
    # first block has counter 1; the vector is checked on the generator set one back.
    generator = np.random.Philox(key=np.zeros(2, dtype=np.uint64), counter=np.full(4, 2**64 - 1, dtype=np.uint64))
    known = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert generator.random_raw(4).tolist() == known


def test_the_hash_is_over_shape_and_little_endian_ids() -> None:
    ids = np.array([[1, 258]], dtype=np.int32)
    by_hand = hashlib.sha256(b"(1, 2)" + b"\x01\x00\x00\x00\x02\x01\x00\x00").hexdigest()
    assert sha256(ids) == by_hand
    assert sha256(ids.T) != by_hand


@pytest.mark.parametrize(
    ("case", "n_outputs"),
    [(Case(0, 16, 4), 4), (Case(0, 16, 0), 1), (Case(0, 0, 4), 4), (Case(8, 16, 1), 1)],
    ids=str,
)
def test_a_prefill_yields_a_token_even_where_none_was_asked_for(case: Case, n_outputs: int) -> None:
    assert case.n_outputs == n_outputs


def test_ways_to_use_the_cache_are_cases_of_their_own() -> None:
    assert grid([0], [8], [4], [1], ["on", "off"]) == (Case(0, 8, 4), Case(0, 8, 4, 1, "off"))
    assert [str(case) for case in grid([8], [4], [1], [2], ["on", "prefix"])] == [
        "p4 n1 d8 B2",
        "p4 n1 d8 B2 reused",
    ]


def test_what_a_cache_cannot_do_is_refused() -> None:
    with pytest.raises(UserError, match=r"--kv-cache off with -d 8: .* give them as the prompt, -p 12"):
        grid([0, 8], [4], [4], [1], ["on", "off"])
    with pytest.raises(UserError, match=r"--kv-cache prefix with -p 0: a prefix as long as the prompt"):
        grid([8], [0], [4], [1], ["prefix"])


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40), st.integers(0, 100), st.data())
def test_a_text_goes_round_from_evenly_spread_places(ids: list[int], n_tokens: int, data: st.DataObject) -> None:
    batch = data.draw(st.integers(1, len(ids)))
    stream = text_stream(np.array(ids, np.int32), n_tokens, batch)
    assert stream.dtype == np.int32
    starts = [sequence * len(ids) // batch for sequence in range(batch)]
    assert len(set(starts)) == batch
    assert stream.tolist() == [[ids[(start + place) % len(ids)] for place in range(n_tokens)] for start in starts]


def test_a_case_names_its_text() -> None:
    (case,) = grid([0], [512], [128], [4], prompt_file="alice.txt")
    assert str(case) == "p512 n128 d0 B4 of alice.txt"
    assert case != Case(0, 512, 128, 4)
