import json
from itertools import count

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.errors import ResultsError
from results.samples import SCHEMA
from results.schema import COLUMNS
from results.verify import VERDICT, argmax_agreement, verify

IDS = (f"{i:012x}" for i in count())
# Limits are three times these: 0.003, 0.03 and 0.3, whatever the project has measured.
FLOORS = {"f32": 0.001, "f16": 0.01, "bf16": 0.1}


@pytest.fixture(autouse=True)
def _round_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.verify.FLOORS", FLOORS)


def part(x: float, y: float) -> list[float]:
    """16 logits of norm sqrt(x² + y²)."""
    return [x, y, *[0.0] * 14]


NEAR = part(3, 4)  # norm 5
FAR = part(6, 8)  # norm 10


def row(backend: str, probe: list[float | None] | None = NEAR, **cells: object) -> dict[str, object]:
    return {
        "machine": "spark",
        "backend": backend,
        "model": "llama",
        "weights_id": "w",
        "architecture": "llama",
        "weight_format": "f16",
        "kv_k_format": "f16",
        "kv_v_format": "f16",
        "status": "ok",
        "row_id": next(IDS),
        "probe_logits": None if probe is None else json.dumps(probe),
    } | cells


def verdicts(*rows: dict[str, object]) -> pd.DataFrame:
    table = pd.DataFrame(list(rows), columns=[column.name for column in COLUMNS])
    return verify(table)


def verified(*rows: dict[str, object]) -> list[str | None]:
    return verdicts(*rows)["verified"].tolist()


def test_two_engines_that_agree_verify_each_other() -> None:
    # (3, 4) to (3, 4.1): distance 0.1, larger norm 5.0804, relative L2 0.0197 <= 0.03
    rows = verdicts(row("torch"), row("mlx", part(3, 4.1)))
    assert rows["verified"].tolist() == ["yes", "yes"]
    assert rows["verified_with"].tolist() == ["mlx on spark", "torch on spark"]
    assert rows["verified_why"].isna().all()


def test_two_engines_that_disagree_are_both_not_verified_and_say_how_far_they_are() -> None:
    # (3, 4) to (3, 4.2): distance 0.2, larger norm 5.1614, relative L2 0.03875 > 0.03
    rows = verdicts(row("torch"), row("mlx", part(3, 4.2)))
    assert rows["verified"].tolist() == ["no", "no"]
    assert rows["verified_with"].isna().all()
    assert rows["verified_why"][0] == "differs from mlx on spark (relative L2 0.039, limit 0.03)"
    assert rows["verified_why"][1] == "differs from torch on spark (relative L2 0.039, limit 0.03)"


def test_one_wrong_engine_of_three_is_the_one_that_is_named() -> None:
    rows = verdicts(row("torch"), row("mlx", part(4, 3)), row("llama.cpp"))
    assert rows["verified"].tolist() == ["yes", "no", "yes"]
    assert rows["verified_with"].fillna("-").tolist() == ["llama.cpp on spark", "-", "torch on spark"]


def test_the_far_part_decides_where_both_have_it() -> None:
    # far: distance 0.5, larger norm sqrt(36 + 72.25) = 10.404, relative L2 0.0481 > 0.03, near equal
    assert verified(row("torch", NEAR + FAR), row("mlx", NEAR + part(6, 8.5))) == ["no", "no"]
    # The larger of the parts, not the sum: near 0.0197 and far 0.0198 are each within 0.03.
    assert verified(row("torch", NEAR + FAR), row("mlx", part(3, 4.1) + part(6, 8.2))) == ["yes", "yes"]
    assert verified(row("torch", NEAR + FAR), row("mlx", NEAR)) == ["yes", "yes"]


@pytest.mark.parametrize(
    ("formats", "verdict"),
    [
        ({}, "no"),
        ({"weight_format": "bf16"}, "yes"),  # the looser of the two engines' formats counts: 0.3
        ({"kv_k_format": "bf16"}, "yes"),
        ({"kv_v_format": "bf16"}, "yes"),
        ({"weight_format": "f32"}, "no"),
        ({"kv_v_format": "f32"}, "no"),
    ],
)
def test_the_coarsest_format_of_both_sets_the_limit(formats: dict[str, str], verdict: str) -> None:
    # relative L2 0.1 / 5.3852 * 5 = 0.0928
    assert verified(row("torch"), row("mlx", part(3, 4.5), **formats)) == [verdict, verdict]


def test_a_machine_makes_another_engine_and_settings_do_not() -> None:
    assert verified(row("torch"), row("torch", machine="mac")) == ["yes", "yes"]
    rows = verdicts(row("torch"), row("torch", flash_attn="off"))
    assert rows["verified"].isna().all()
    assert set(rows["verified_why"]) == {"no other engine ran this model"}


def test_an_engine_that_disagrees_with_itself_says_so() -> None:
    rows = verdicts(row("torch"), row("torch", part(0, 5), flash_attn="off"), row("mlx"))
    assert rows["verified"].tolist() == ["yes", "no", "yes"]
    # (3, 4) to (0, 5): distance sqrt(10) = 3.162, norms 5: relative L2 0.632
    itself = "its own launches disagree: torch on spark (relative L2 0.63, limit 0.03)"
    assert rows["verified_why"].fillna("-").tolist() == [
        itself,
        f"differs from mlx on spark (relative L2 0.63, limit 0.03); {itself}",
        "-",
    ]


def test_one_bad_launch_of_three_spoils_only_its_own_rows() -> None:
    bad = row("torch", part(4, 3), launch=2)
    rows = verdicts(row("torch", launch=1), bad, bad, bad, row("torch", launch=3), row("mlx"))
    assert rows["verified"].tolist() == ["yes", "no", "no", "no", "yes", "yes"]


def test_a_probe_that_is_not_a_number_verifies_nothing() -> None:
    rows = verdicts(row("torch", [None, *NEAR[1:]]), row("mlx"), row("llama.cpp"))
    assert rows["verified"].tolist() == ["no", "yes", "yes"]
    rows = verdicts(row("torch", NEAR + [None] * 16), row("mlx", NEAR + FAR), row("llama.cpp", NEAR + FAR))
    assert rows["verified"].tolist() == ["no", "yes", "yes"]


def test_quantised_weights_are_not_held_against_others() -> None:
    # llama.cpp's and MLX's 4 bits are not the same numbers, and bf16 is other work: only the two bf16 rows meet.
    q4 = row("llama.cpp", part(30, 4), weights_id="q", weight_format="q4_k_m")
    mlx4 = row("mlx", part(3, 40), weights_id="m", weight_format="4bit")
    rows = verdicts(row("torch"), row("llama.cpp"), q4, mlx4)
    assert rows["verified"].iloc[:2].tolist() == ["yes", "yes"]
    assert rows["verified"].iloc[2:].isna().all()
    why = "no other engine ran the same weights: these are quantised, and each engine quantises in its own way"
    assert rows["verified_why"].iloc[2:].tolist() == [why, why]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"model": "qwen"}, "no other engine ran this model"),
        ({"weights_id": "v"}, "no other engine ran the same weights"),
        ({"weights_id": None}, "no other engine ran the same weights"),
        ({"architecture": "mistral"}, "no other engine ran the same weights"),
        ({"probe": None}, "no other engine's probe was scored"),
        ({"probe": None, "weights_id": None, "status": "failed"}, "no other engine's probe was scored"),
        ({"weight_format": "q4_k"}, "no floor is known for these formats"),
        ({"kv_k_format": "q8_0"}, "no floor is known for these formats"),
    ],
)
def test_what_cannot_be_judged_has_a_reason(other: dict[str, object], reason: str) -> None:
    rows = verdicts(row("torch"), row("mlx", **other))
    assert rows["verified"].isna().all()
    assert rows["verified_why"][0] == reason


def test_rows_without_a_probe_or_weights_say_so() -> None:
    failed = row("torch", None, status="failed", weights_id=None, weight_format=None)
    rows = verdicts(failed, row("mlx"), row("torch"), row("llama.cpp", weights_id=None))
    assert rows["verified"].fillna("-").tolist() == ["-", "yes", "yes", "-"]
    assert rows["verified_why"][0] == "its probe was not scored"
    assert rows["verified_why"][3] == "its weights are not identified"


def test_a_server_has_no_logits_to_show() -> None:
    rows = verdicts(row("openai", None), row("mlx"))
    assert rows["verified_why"].tolist() == [
        "a server's protocol shows no logits to compare",
        "no other engine's probe was scored",
    ]


@pytest.mark.parametrize(
    "cell",
    [json.dumps(cell) for cell in ([1.0, 2.0], ["1.5"] * 16, [[]] * 16, [True] * 16, [10**400] * 16, {}, 7)]
    + ["[", "", f"[{', '.join(['NaN'] * 16)}]"],
)
def test_a_probe_that_is_no_list_of_numbers_is_one_clear_error(cell: str) -> None:
    with pytest.raises(ResultsError, match="JSON list of 16 or 32 numbers expected") as caught:
        verdicts(row("torch"), row("mlx", None, probe_logits=cell))
    assert "\n" not in str(caught.value)


def test_rows_keep_their_index_order_and_columns() -> None:
    rows = pd.DataFrame([row("torch"), row("mlx"), row("torch")], columns=[column.name for column in COLUMNS])
    rows.index = pd.Index([7, 7, 3])
    judged = verify(rows)
    pd.testing.assert_frame_equal(judged.drop(columns=VERDICT), rows.drop(columns=VERDICT))
    assert list(judged) == list(rows)
    assert judged["verified"].tolist() == ["yes"] * 3
    assert set(VERDICT) <= set(verify(rows.iloc[:0]))
    assert list(verify(rows.drop(columns=VERDICT)).columns[-3:]) == VERDICT, "tables from elsewhere may lack them"


def test_a_verdict_names_three_engines_and_counts_the_rest() -> None:
    rows = verdicts(*(row("torch", machine=f"m{i}") for i in range(6)))
    assert rows["verified_with"][0] == "torch on m1, torch on m2, torch on m3 and 2 more"
    assert verdicts(*(row("torch", machine=f"m{i}") for i in range(4)))["verified_with"][3] == (
        "torch on m0, torch on m1, torch on m2"
    )


def test_many_groups_are_judged_in_blocks_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("torch", part(3, 4 + 0.02 * (i % 12)), machine=f"m{i}") for i in range(30)]
    whole = verdicts(*rows)
    monkeypatch.setattr("results.verify._BLOCK", 70)  # two probes at a time
    pd.testing.assert_frame_equal(verdicts(*rows)[VERDICT], whole[VERDICT])


@given(
    st.lists(st.floats(-50, 50), min_size=16, max_size=16).filter(any),
    st.floats(-0.2, 0.2).filter(lambda change: abs(abs(change) - 0.03) > 0.001 and abs(change) > 1e-6),
)
def test_a_scaled_probe_is_judged_by_its_scale_from_both_sides(logits: list[float], change: float) -> None:
    # a and (1 + c) a are |c| / max(1, 1 + c) apart
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("results.verify.FLOORS", FLOORS)
        judged = verified(row("torch", logits), row("mlx", [(1 + change) * logit for logit in logits]))
    distance = abs(change) / max(1, 1 + change)
    assert judged == ["yes" if distance <= 0.03 else "no"] * 2


def test_many_launches_are_each_judged() -> None:
    # 3000 distinct probes of two engines, a tenth of the first engine's far off
    generator = np.random.default_rng(0)
    rows = []
    for i in range(3000):
        off = 1.0 if i % 20 == 0 else 0.0
        noise = generator.uniform(-0.01, 0.01)
        rows.append(row("torch" if i % 2 == 0 else "mlx", part(3 + noise + off, 4), launch=i))
    judged = verdicts(*rows)
    assert judged["verified"].tolist() == ["no" if i % 20 == 0 else "yes" for i in range(3000)]


def samples_of(rows: pd.DataFrame, argmax: list[list[int]]) -> pd.DataFrame:
    ids = [np.array(ids, dtype=np.int32) for ids in argmax]
    return pd.DataFrame({"row_id": rows["row_id"], "argmax": ids}, columns=SCHEMA.names)


def timed(*rows: dict[str, object]) -> pd.DataFrame:
    workload = {"n_depth": 0, "n_prompt": 8, "n_gen": 4, "batch": 1, "kv_cache": "on", "prompt_file": None}
    return pd.DataFrame([workload | {"tokens_sha256": "t"} | cells for cells in rows])


def test_argmax_agreement_is_the_equal_fraction_of_ids() -> None:
    rows = timed(row("torch"), row("mlx"), row("llama.cpp"))
    agreement = argmax_agreement(samples_of(rows, [[1, 2, 3, 4], [1, 2, 3, 5], [9, 2, 3, 5]]), rows)
    found = {(line.engine_a, line.engine_b): (line.ids, line.agreement) for line in agreement.itertuples()}
    assert found == {
        ("mlx on spark", "torch on spark"): (4, 0.75),
        ("llama.cpp on spark", "torch on spark"): (4, 0.5),
        ("llama.cpp on spark", "mlx on spark"): (4, 0.75),
    }
    assert set(agreement["n_gen"]) == {4}


def test_argmax_agreement_adds_up_token_streams_and_takes_one_repetition_of_each() -> None:
    rows = timed(
        row("torch"),
        row("torch"),
        row("torch", tokens_sha256="u"),
        row("mlx"),
        row("mlx", tokens_sha256="u"),
    )
    samples = samples_of(rows, [[1, 2, 3, 4], [0, 0, 0, 0], [5, 6], [1, 2, 3, 0], [5, 0]])
    (line,) = argmax_agreement(samples, rows).to_dict("records")
    assert (line["ids"], line["agreement"]) == (6, 4 / 6)


@pytest.mark.parametrize(
    "other",
    [
        {"tokens_sha256": "u"},
        {"weights_id": "v"},
        {"n_depth": 8},
        {"kv_cache": "off"},
        {"prompt_file": "alice.txt"},
        {"status": "failed"},
        {"weight_format": "f32"},
        {"weights_id": None},
    ],
)
def test_argmax_agreement_compares_equal_work_only(other: dict[str, object]) -> None:
    rows = timed(row("torch"), row("mlx", **other))
    assert len(argmax_agreement(samples_of(rows, [[1, 2], [1, 2]]), rows)) == 0


def test_argmax_agreement_refuses_samples_of_different_length() -> None:
    rows = timed(row("torch"), row("mlx"))
    with pytest.raises(ResultsError, match="ids for the same work"):
        argmax_agreement(samples_of(rows, [[1, 2], [1, 2, 3]]), rows)
