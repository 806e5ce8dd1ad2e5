"""How a case reads, and which comes first."""

from itertools import permutations

import pandas as pd

from reports.case import case_name, plainest_first

CASE = {"n_depth": 0, "n_prompt": 512, "n_gen": 128, "batch": 1, "kv_cache": "on"}


def test_a_text_is_named_where_there_is_one() -> None:
    assert case_name({**CASE, "prompt_file": None}) == "p512 n128 d0"
    assert case_name({**CASE, "prompt_file": float("nan")}) == "p512 n128 d0"
    assert case_name({**CASE, "batch": 4, "kv_cache": "prefix", "prompt_file": "alice.txt"}) == (
        "p512 n128 d0 B4 reused of alice.txt"
    )


def test_a_name_from_elsewhere_keeps_to_its_place() -> None:
    assert case_name({**CASE, "prompt_file": "\u202e" + 200 * "x"}).endswith("…" + 16 * "x")
    assert len(case_name({**CASE, "prompt_file": 200 * "x"})) < 110


def test_the_plainest_case_comes_first() -> None:
    """One sequence, then the least depth, then the longest generation, then the longest prompt."""
    columns = ["batch", "n_depth", "n_gen", "n_prompt"]
    ordered = [[1, 0, 128, 512], [1, 0, 128, 16], [1, 0, 32, 4096], [1, 512, 256, 512], [4, 0, 256, 512]]
    for shuffled in permutations(ordered):
        assert plainest_first(pd.DataFrame(shuffled, columns=columns)).to_numpy().tolist() == ordered
