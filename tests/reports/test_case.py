"""How a case reads."""

from reports.case import case_name

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
