"""Names of people and machines leave a text, and the words around them stay."""

import json
import platform
import socket
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.formats import write
from results.read import read
from results.safe_text import as_file_name, without_names


@pytest.fixture
def lovelace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of somebody called max, as the system tells it on a home network."""
    monkeypatch.setenv("LOGNAME", "max")
    monkeypatch.setattr(platform, "node", lambda: "Lovelace-PC.fritz.box")
    monkeypatch.setattr(socket, "gethostname", lambda: "lovelace-pc")


@pytest.mark.usefixtures("lovelace")
@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("lovelace-pc.fritz.box:50052 refused max", "[host]:50052 refused [user]"),
        ("max@LOVELACE-PC: killed", "[user]@[host]: killed"),
        ("of /data/max/model.gguf", "of /data/[user]/model.gguf"),
        ("max-autotune, maximum 7, n_max, climax", "max-autotune, maximum 7, n_max, climax"),
        ("lovelace-pc2 and the-lovelace-pc", "lovelace-pc2 and the-lovelace-pc"),
    ],
)
def test_names_go_where_they_are_whole_words(text: str, safe: str) -> None:
    assert without_names(text) == safe
    assert without_names(safe) == safe


@pytest.mark.parametrize("name", ["root", "ubuntu", "vm", "NVIDIA", ""])
def test_what_names_nobody_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("LOGNAME", name)
    monkeypatch.setenv("USER", name)
    monkeypatch.setattr(platform, "node", lambda: name)
    monkeypatch.setattr(socket, "gethostname", lambda: f"{name}.local" if name else "")
    said = "root: no NVIDIA driver for vm on ubuntu"
    assert without_names(said) == said


def test_a_user_without_a_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")  # what Python 3.11 and 3.12 raise

    monkeypatch.setattr("getpass.getuser", nameless)
    assert without_names("killed") == "killed"


@pytest.mark.usefixtures("lovelace")
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_rows_keep_what_people_named_themselves(tmp_path: Path, ending: str) -> None:
    row = {
        "provenance": "imported", "source": "llama-bench", "machine": "lovelace-pc", "backend": "llama.cpp",
        "model": "max", "n_depth": 0, "n_prompt": 0, "n_gen": 128, "batch": 1, "kv_cache": "on", "status": "failed",
        "error": "max: lovelace-pc is out of memory", "engine_settings": {"rpc": ["lovelace-pc:50052"], "mode": 5},
        "unavailable": '{"ttft_s": "max may not read it"}', "row_id": "000000000000",
    }  # fmt: skip
    write(pd.DataFrame([row]), tmp_path / f"rows{ending}")
    (kept,) = read(tmp_path / f"rows{ending}").to_dict("records")
    assert (kept["machine"], kept["model"]) == ("lovelace-pc", "max")
    assert kept["error"] == "[user]: [host] is out of memory"
    assert json.loads(kept["engine_settings"]) == {"rpc": ["[host]:50052"], "mode": 5}
    assert json.loads(kept["unavailable"]) == {"ttft_s": "[user] may not read it"}


@given(text=st.text())
def test_any_text_can_be_asked(text: str) -> None:
    assert without_names(without_names(text)) == without_names(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen3-8B.Q4_K_M", "Qwen3-8B.Q4_K_M"),
        ("org/name", "org-name"),
        ("../../etc/passwd", "etc-passwd"),
        ("C:\\models\\a b", "C-models-a-b"),
        ("日本語 モデル", "日本語-モデル"),
        ("..", ""),
    ],
)
def test_a_text_becomes_the_name_of_one_file(text: str, name: str) -> None:
    assert as_file_name(text) == name


@given(text=st.text(max_size=300))
def test_any_text_becomes_a_name_that_a_folder_can_hold(text: str) -> None:
    name = as_file_name(text)
    assert len(name.encode()) <= 100
    assert name not in {".", ".."}
    assert not set(name) & set('/\\:*?"<>|\0\n')
