import pandas as pd

from reports.agreement import agreement_text
from reports.words import words

EN = words("en")


def test_a_pairs_cases_are_weighed_by_their_tokens_and_the_worst_is_named() -> None:
    case = {"n_prompt": 8, "n_gen": 4, "n_depth": 0, "batch": 1, "kv_cache": "on", "prompt_file": None}
    case |= {"engine_a": "mlx on here", "engine_b": "torch on here"}
    agreement = pd.DataFrame(
        [{**case, "ids": 30, "agreement": 1.0}, {**case, "n_depth": 24, "ids": 10, "agreement": 0.4}]
    )
    text = agreement_text(agreement, EN)
    # 30 of 30 and 4 of 10 are 34 of 40.
    assert "mlx and torch 85 % of 40" in text
    assert "least 40 % in p8 n4 d24" in text
    assert "least" not in agreement_text(agreement.iloc[:1], EN)
    assert agreement_text(agreement.iloc[:0], EN) == ""
    assert "40 個のうち 85 %、最低は p8 n4 d24 の 40 %" in agreement_text(agreement, words("ja"))
