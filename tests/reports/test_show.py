"""Bars of text, whose lengths follow from the rates."""

from typing import Any

import pytest
from rich.cells import cell_len

from reports.show import ASCII_MARK, EIGHTHS, MARK, show
from reports.words import words

EN = words("en")


def _lines(gathered: Any, *rows: dict[str, Any], width: int = 80, blocks: bool = True) -> list[str]:
    return show(gathered(*rows), EN, width=width, blocks=blocks).splitlines()


def test_bars_are_as_long_as_rates_and_marks_stand_at_ceilings(gathered: Any, make_row: Any) -> None:
    half = make_row(backend="mlx", decode_tok_s=25.0, mbu=0.5)
    title, torch, mlx, *_ = _lines(gathered, make_row(), half)
    assert title == "spark: llama-3.2-1b bf16, p512 n128 d0: decode tok/s"
    full = torch.index(MARK) - torch.index(EIGHTHS[-1]) + 1  # to the ceiling of 50 tok/s
    assert torch.count(EIGHTHS[-1]) == pytest.approx(0.8 * full, abs=1)
    assert mlx.count(EIGHTHS[-1]) == pytest.approx(0.5 * full, abs=1)
    assert torch.endswith("40.00  80 % of 50.00")
    assert mlx.endswith("25.00  50 % of 50.00")
    assert torch.index(MARK) == mlx.index(MARK)


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("blocks", [True, False])
def test_lines_fit_the_terminal(gathered: Any, make_row: Any, width: int, blocks: bool) -> None:
    rows = [make_row(machine=machine) for machine in ("spark", "あいう")]
    bars = _lines(gathered, *rows, width=width, blocks=blocks)[1:3]
    assert max(map(cell_len, bars)) <= width
    assert len(set(map(cell_len, bars))) == 1


def test_a_setting_gives_the_terminal_no_command(gathered: Any, make_row: Any) -> None:
    rows = [make_row(engine_settings={"asked": {"mode": f"\x1b[3{n}m\x07\r\n"}}) for n in (1, 2)]
    lines = _lines(gathered, *rows)
    assert sum("mode= [3" in line for line in lines) == 2
    assert not set("".join(lines)) & set("\x1b\x07\r")


def test_ascii_where_the_terminal_has_no_blocks(gathered: Any, make_row: Any) -> None:
    text = "\n".join(_lines(gathered, make_row(), blocks=False))
    text.encode("ascii")
    assert ASCII_MARK in text
    assert "####" in text


def test_a_rate_above_its_ceiling_and_one_without(gathered: Any, make_row: Any) -> None:
    rows = [
        make_row(decode_tok_s=60.0),
        make_row(backend="mlx", decode_tok_s=30.0, decode_ceiling_tok_s=None),
    ]
    _, above, alone, *_ = _lines(gathered, *rows)
    assert above.endswith("120 % of 50.00 !")
    assert above.index(MARK) < above.rindex(EIGHTHS[-1])
    assert alone.endswith("30.00  ceiling unknown")
    assert MARK not in alone


def test_what_is_missing_is_said(gathered: Any, make_row: Any) -> None:
    failed = make_row(status="failed", error="out of memory", decode_tok_s=None)
    assert _lines(gathered) == [EN["answer.empty"]]
    assert _lines(gathered, failed) == [
        "Every repetition failed (1 in all), so there is no rate to report. The reasons are below.",
        "",
        "Failed repetitions, 1 of 1:",
        "  1 × torch, llama-3.2-1b: out of memory",
    ]
    assert _lines(gathered, make_row(n_gen=0, decode_tok_s=None)) == [EN["answer.no_decode"]]
    assert _lines(gathered, make_row(kv_cache="off")) == [EN["answer.no_cached_decode"]]
    assert "Rows left out: 1 " in _lines(gathered, make_row(), make_row(comparable="no"))[-1]
