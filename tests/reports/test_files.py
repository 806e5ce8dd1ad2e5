import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reports.files import replace_file


def test_text_and_bytes_take_the_place_of_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    replace_file(path, "上限\n")
    assert path.read_bytes() == "上限\n".encode()
    replace_file(path, b"\x89PNG\r\n")
    assert path.read_bytes() == b"\x89PNG\r\n"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file_and_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    replace_file(path, "old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "half of it \ud800")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_file(tmp_path / "folder", "x")
    assert path.read_text(encoding="utf-8") == "old"
    assert {each.name for each in tmp_path.iterdir()} == {"page.html", "folder"}


def test_a_killed_writer_leaves_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    code = "import itertools, pathlib, sys; from reports.files import replace_file\n"
    code += "for n in itertools.count(): replace_file(pathlib.Path(sys.argv[1]), str(n % 10) * 20_000_000)"
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", code, path])
        while not path.exists():
            time.sleep(0.01)
        time.sleep(0.05)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        text = path.read_text(encoding="utf-8")
        assert text == text[0] * 20_000_000
