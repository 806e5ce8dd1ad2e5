from collections.abc import Callable

import pandas as pd
import pytest

from results.compare.settings import asked_text, settings_of
from results.errors import ResultsError

Make = Callable[..., pd.DataFrame]


def test_each_setting_is_a_column(make: Make) -> None:
    told = {"asked": {"flash_attn": "auto", "n_batch": 512}, "flash_attn": "on", "buffers": {"kv": 1}, "no_perf": True}
    rows = pd.concat([make([1.0, 1.0], engine_settings=told), make([1.0], engine_settings={"asked": {"n_batch": 64}})])
    settings = settings_of(rows)
    assert settings.index.equals(rows.index)
    assert settings["asked.n_batch"].tolist() == ["512", "512", "64"]
    assert settings["effective.flash_attn"].tolist()[:2] == ["on", "on"]
    assert settings["effective.no_perf"].isna().tolist() == [False, False, True]
    assert set(settings) == {"asked.flash_attn", "asked.n_batch", "effective.flash_attn", "effective.no_perf"}


def test_where_no_request_is_told_the_columns_stand_for_it(make: Make) -> None:
    rows = pd.concat([make([1.0], engine_settings=None, n_threads=t, n_gpu_layers=99) for t in (4, None)])
    settings = settings_of(rows)
    assert settings["asked.n_threads"].tolist()[0] == "4"
    assert settings["asked.n_threads"].isna().tolist() == [False, True]
    assert settings["asked.n_gpu_layers"].tolist() == ["99", "99"]


@pytest.mark.parametrize("cell", ["{", "[]", "7"])
def test_what_is_no_object_is_named(make: Make, cell: str) -> None:
    rows = make([1.0], engine_settings=cell)
    for function in (settings_of, lambda rows: asked_text(rows["engine_settings"])):
        with pytest.raises(ResultsError, match="engine_settings: a JSON object expected, not "):
            function(rows)
