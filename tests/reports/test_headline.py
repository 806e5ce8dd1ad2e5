"""Which lines come first."""

from typing import Any

from reports.headline import headlines
from reports.summary import summarise


def _shown(gathered: Any, *rows: dict[str, Any]) -> list[list[tuple[str, str, int]]]:
    groups = headlines(summarise(gathered(*rows).own))
    return [list(zip(g["machine"], g["backend"], g["n_depth"].astype(int), strict=True)) for g in groups]


def test_the_case_that_most_engines_did_comes_first_and_nobody_is_left_out(gathered: Any, make_row: Any) -> None:
    rows = [
        make_row(machine="a", backend="torch", n_depth=4096, decode_tok_s=30.0),
        make_row(machine="a", backend="mlx", n_depth=4096, decode_tok_s=35.0),
        make_row(machine="a", backend="torch", n_depth=0),
        make_row(machine="b", backend="torch", n_depth=0, decode_tok_s=20.0),
        make_row(machine="c", backend="torch", n_depth=64, decode_tok_s=10.0),
        make_row(machine="c", backend="torch", n_depth=0, n_gen=0, decode_tok_s=None),
        make_row(machine="c", backend="torch", n_depth=0, status="failed"),
    ]
    assert _shown(gathered, *rows) == [
        [("a", "torch", 0), ("b", "torch", 0)],
        [("c", "torch", 64)],
        [("a", "mlx", 4096)],
    ]


def test_models_and_formats_stay_apart(gathered: Any, make_row: Any) -> None:
    rows = [make_row(weight_format=form, decode_tok_s=rate) for form, rate in (("bf16", 40.0), ("q4_0", 90.0))]
    assert [len(group) for group in _shown(gathered, *rows)] == [1, 1]
    assert _shown(gathered) == []


def test_a_text_is_a_case_of_its_own(gathered: Any, make_row: Any) -> None:
    rows = [
        make_row(machine="a", prompt_file="alice.txt"),
        make_row(machine="b", prompt_file="alice.txt", decode_tok_s=20.0),
        make_row(machine="b"),
        make_row(machine="c"),
        make_row(machine="d"),
    ]
    assert _shown(gathered, *rows) == [
        [("b", "torch", 0), ("c", "torch", 0), ("d", "torch", 0)],
        [("a", "torch", 0)],
    ]
