"""A prompt file: what is read of it, and what is refused."""

import hashlib
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.prompt import text
from harness.prompt.text import read_text


def test_a_text_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "alice.txt"
    path.write_bytes("Down the\r\nrabbit hole: 穴".encode())
    found = read_text(path)
    assert found.text == "Down the\r\nrabbit hole: 穴"
    assert found.name == "alice.txt"
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.label == f"alice.txt {found.sha256[:12]}"


def test_a_mark_of_the_byte_order_is_none_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "notepad.txt"
    path.write_text("ab", encoding="utf-8-sig")
    assert read_text(path).text == "ab"


def test_a_name_is_safe_in_a_row_and_on_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\n\x1b[31m\u202eb.txt"
    path.write_text("ab")
    assert read_text(path).name == "a  [31mb.txt"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"abc\xff", "not UTF-8 text: byte 3 is 0xff"),
        (b"x" * 101, "more than any context holds; 100 bytes are the most"),
    ],
)
def test_what_is_no_prompt_is_refused(
    content: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_MOST_BYTES", 100)
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=why):
        read_text(path)


def test_no_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(UserError, match="cannot be read"):
        read_text(tmp_path)


def test_what_has_no_end_is_refused() -> None:
    with pytest.raises(UserError, match="more than any context holds"):
        read_text(Path("/dev/zero"))
