from collections.abc import Callable

import pandas as pd
import pytest

from results.compare.sides import sides_by
from results.errors import ResultsError

Make = Callable[..., pd.DataFrame]


def test_the_first_value_met_is_the_base_or_a_named_one(make: Make) -> None:
    rows = pd.concat([make([1.0], machine=machine) for machine in ("b", "a", "b", "c")])
    assert [(side.name, len(side.rows)) for side in sides_by(rows, ["machine"])[0]] == [("b", 2), ("a", 1), ("c", 1)]
    assert [side.name for side in sides_by(rows, ["machine"], "c")[0]] == ["c", "b", "a"]


def test_several_columns_make_one_value(make: Make) -> None:
    rows = pd.concat([make([1.0], kv_k_format=one, kv_v_format=one) for one in ("f16", "q8_0")])
    assert [side.name for side in sides_by(rows, ["kv_k_format", "kv_v_format"])[0]] == ["f16,f16", "q8_0,q8_0"]


def test_numbers_and_settings_that_were_asked_for_will_do(make: Make) -> None:
    rows = pd.concat([make([1.0], n_threads=t, engine_settings={"asked": {"n_ubatch": 256 * t}}) for t in (2, 4)])
    assert [side.name for side in sides_by(rows, ["n_threads"])[0]] == ["2", "4"]
    assert [side.name for side in sides_by(rows, ["n_ubatch"])[0]] == ["512", "1024"]


def test_rows_with_an_empty_cell_are_handed_back(make: Make) -> None:
    rows = pd.concat([make([1.0], device=device) for device in ("cpu", None, "gpu")])
    sides, without = sides_by(rows, ["device"])
    assert [side.name for side in sides] == ["cpu", "gpu"]
    assert len(without) == 1


@pytest.mark.parametrize(
    ("by", "base", "message"),
    [
        ("n_gen", None, "--by n_gen: nothing to compare by; one of .*backend"),
        ("machin", None, "--by machin: nothing to compare by"),
        ("engine_settings", None, "nothing to compare by"),
        ("machine", None, "--by machine: two values are needed, and there is spark"),
        ("n_gpu_layers", None, "two values are needed, and there is none"),
        ("backend", "mlx", "--by backend --base mlx: no such value; one of llama.cpp, torch"),
    ],
)
def test_a_mistake_says_what_there_is(make: Make, by: str, base: str | None, message: str) -> None:
    backend = "torch" if by == "backend" else "llama.cpp"
    rows = pd.concat([make([1.0]), make([1.0], backend=backend)])
    with pytest.raises(ResultsError, match=message):
        sides_by(rows, [by], base)
