"""`tokenroof run --backend openai` in this process: its exit code, its words, its rows."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from harness.cli.main import main
from harness.machine.hardware import inspect
from harness.models.gguf_export import export
from harness.models.presets import PRESETS
from harness.models.synthesis import synthesise
from results.read import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd


@dataclass(frozen=True)
class Outcome:
    """What a run left.

    Attributes:
        code: its exit code.
        out, err: what it printed.
        output: the CSV that it was told to write.
    """

    code: int
    out: str
    err: str
    output: Path

    @property
    def rows(self) -> pd.DataFrame:
        assert self.output.exists(), self.err
        return read(self.output)

    @property
    def row(self) -> pd.Series:
        """The only one."""
        (_, row), *others = self.rows.iterrows()
        assert not others
        return row

    @property
    def error(self) -> str:
        """Of the only row, which failed; in one line, and no traceback anywhere."""
        assert self.code == 1, self.err
        assert self.row["status"] == "failed"
        assert "Traceback" not in self.out + self.err
        text = self.row["error"]
        assert len(text.splitlines()) == 1
        return text

    @property
    def ok(self) -> pd.Series:
        """The only row, which is good."""
        assert self.row["status"] == "ok", self.row["error"]
        assert self.code == 0, self.err
        return self.row


@pytest.fixture(scope="session")
def tiny_hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic Llama in bf16, made without torch; nearly all tokens that it answers have a text of their own."""
    config = PRESETS["llama-2-7b"] | {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 4096,
        "max_position_embeddings": 512,
    }
    directory = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    synthesise(config, directory)
    return directory


@pytest.fixture(scope="session")
def tiny_gguf(tiny_hf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a GGUF file."""
    path = tmp_path_factory.mktemp("tiny") / "tiny-llama.gguf"
    export(tiny_hf, path, "bf16")
    return path


_this_machine = functools.cache(inspect)


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs one case against a base URL, once; of equal flags the last counts."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("harness.serving.plan.inspect", _this_machine)  # half of what such a run takes

    def run(base_url: str, *flags: str, output: str = "out.csv") -> Outcome:
        path = tmp_path / output
        model = [] if "-m" in flags else ["-m", "fake-model"]
        case = ["-p", "16", "-n", "8", "-r", "1", "--machine", "here", "--timeout", "5", "-o", str(path)]
        command = ["tokenroof", "run", "--backend", "openai", "--base-url", base_url, *model, *case, *flags]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Outcome(ended.value.code, printed.out, printed.err, path)

    return run
