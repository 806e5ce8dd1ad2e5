import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.lists import choices, splits, words
from harness.errors import UserError

_WORDS = st.lists(st.text("abc0_:.", min_size=1), min_size=1, unique=True)


@given(_WORDS, st.text(" "))
def test_words_are_what_was_joined_however_spaced(each: list[str], space: str) -> None:
    assert words(f"{space},{space}".join(each)) == tuple(each)
    assert words(",".join([*each, *each])) == tuple(each), "each once"


def test_a_word_that_is_not_known_is_told() -> None:
    assert choices("on, auto", "-fa", ("auto", "on", "off")) == ("on", "auto")
    with pytest.raises(UserError, match=r"^-fa on,maybe: 'maybe' is none of auto, on, off$"):
        choices("on,maybe", "-fa", ("auto", "on", "off"))


def test_splits_are_read_as_llama_bench_writes_them() -> None:
    assert splits("3/1") == ((3.0, 1.0),)
    assert splits("1/1, 0/0.5,1") == ((1.0, 1.0), (0.0, 0.5), (1.0,))


@pytest.mark.parametrize("word", ["", "0/0", "-1/2", "a/b", "1/", "inf/1", "nan/1"])
def test_what_is_no_split_is_told(word: str) -> None:
    with pytest.raises(UserError, match=r"^-ts .*is no split; write each GPU's part"):
        splits(f"1/1,{word}")
