"""Times to first token and the least that their prompts can take."""

from collections.abc import Callable
from typing import Any

import pytest

from reports.figures import Drawn, Missing

Make = Callable[..., dict[str, Any]]


def test_times_and_ceilings_are_the_rows(drawn: Callable[..., Drawn], make_row: Make) -> None:
    # At 2000 tok/s 100 and 1000 tokens take 50 and 500 ms.
    rows = [make_row(n_prompt=n, ttft_s=n / 1000, prefill_ceiling_tok_s=2000.0) for n in (1000, 100)]
    rows.append(make_row(n_prompt=0, n_depth=512, ttft_s=None))
    (axes,) = drawn("ttft", *rows).figure.axes
    (bars,) = axes.containers
    assert list(bars.lines[0].get_xdata()) == [100, 1000]
    assert bars.lines[0].get_ydata() == pytest.approx([100, 1000])
    (ceiling,) = (line for line in axes.lines if line.get_linestyle() == "--")
    assert list(ceiling.get_xdata()) == [100, 1000]
    assert ceiling.get_ydata() == pytest.approx([50, 500])


def test_engines_share_a_panel_machines_do_not(drawn: Callable[..., Drawn], make_row: Make) -> None:
    rows = [
        make_row(machine=machine, backend=backend, n_prompt=n)
        for machine, backend in (("a", "torch"), ("a", "mlx"), ("b", "torch"))
        for n in (64, 512)
    ]
    assert [len(axes.containers) for axes in drawn("ttft", *rows).figure.axes] == [2, 1]


def test_one_length_is_no_figure(missing: Callable[..., Missing], make_row: Make) -> None:
    assert "tokenroof run -p 128,512,2048" in missing("ttft", make_row(), make_row(backend="mlx", n_prompt=64)).reason
