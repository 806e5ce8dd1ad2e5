"""With the KV cache and without: equal work alone, a step at its mean length and the whole text, from known rows."""

from collections.abc import Callable
from typing import Any

import pytest

from reports.figures import Drawn, Missing

Make = Callable[..., dict[str, Any]]
Draw = Callable[..., Drawn]


def _rows(make_row: Make, **cells: Any) -> list[dict[str, Any]]:
    """Prompts of 16 tokens; a step takes 10 ms with the cache, and without it 30 ms, then 110 ms."""
    times = {("on", 3): 0.010, ("off", 3): 0.030, ("on", 101): 0.010, ("off", 101): 0.110}
    common = {"n_prompt": 16, "ttft_s": 0.5, "prefill_ceiling_tok_s": 160.0} | cells
    return [
        make_row(kv_cache=way, n_gen=n, tpot_s=s, engine_mode=f"loop {way}", **common) for (way, n), s in times.items()
    ]


def test_a_steps_mean_and_the_whole_text_stand_beside_their_ceilings(drawn: Draw, make_row: Make) -> None:
    alone = make_row(n_prompt=64, n_gen=9, tpot_s=0.5)  # nobody did that without a cache
    reused = make_row(kv_cache="prefix", n_prompt=16, n_gen=3, tpot_s=0.9)
    figure = drawn("kv_cache", *_rows(make_row), alone, reused)
    step, whole = figure.figure.axes
    off, off_least, on, on_least = (line.get_xydata().tolist() for line in step.lines)
    # Two steps look at 17 and 18 tokens, a hundred at 17 to 116.
    assert off == [[17.5, pytest.approx(30)], [66.5, pytest.approx(110)]]
    assert on == [[17.5, pytest.approx(10)], [66.5, pytest.approx(10)]]
    assert off_least == on_least == [[17.5, pytest.approx(20)], [66.5, pytest.approx(20)]]  # 50 tokens a second
    totals = [bars.lines[0].get_xydata().tolist() for bars in whole.containers]
    assert totals == [
        [[19, pytest.approx(0.5 + 2 * 0.030)], [117, pytest.approx(0.5 + 100 * 0.110)]],
        [[19, pytest.approx(0.5 + 2 * 0.010)], [117, pytest.approx(0.5 + 100 * 0.010)]],
    ]
    least = [line.get_ydata().tolist() for line in whole.lines if line.get_linestyle() == "--"]
    assert least[0] == pytest.approx([16 / 160 + 2 / 50, 16 / 160 + 100 / 50])
    assert "11.50 s without and 1.50 s with it at 117 tokens" in figure.alt


def test_engines_have_panels_of_their_own(drawn: Draw, make_row: Make) -> None:
    figure = drawn("kv_cache", *_rows(make_row), *_rows(make_row, backend="mlx")).figure
    titles = [text.get_text() for text in figure.texts]
    assert titles.count("torch, llama-3.2-1b, bf16") == titles.count("mlx, llama-3.2-1b, bf16") == 2
    assert len(figure.axes) == 4


def test_other_work_is_no_comparison(missing: Callable[..., Missing], make_row: Make) -> None:
    apart = [make_row(), make_row(kv_cache="off", n_gen=64), make_row(kv_cache="off", backend="mlx")]
    assert "tokenroof kv-cache" in missing("kv_cache", *apart).reason
